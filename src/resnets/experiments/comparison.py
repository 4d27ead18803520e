"""Compare our numbers with the papers', as text. Each of ours comes with its budget, its seeds and what was scaled."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Cell, Experiment

HEADER = ("row", "the paper", "ours", "training loss", "runs", "scaled besides")
NOT_RUN = "not run"


def find_common(scalings: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """What was scaled in all rows."""
    first, *others = [*scalings] or [()]
    return tuple(word for word in first if all(word in other for other in others))


def remove_common(scaled: Iterable[str], shared: Sequence[str]) -> tuple[str, ...]:
    """What was scaled in a row and not in all."""
    return tuple(word for word in scaled if word not in shared)


def compare_rows(experiment: Experiment, found: Outcomes) -> tuple[list[list[str]], str]:
    """A line for each cell, and what was scaled in all of them."""
    shared = find_common(found[row.name].scaled for row in experiment.rows if row.name in found)
    return [_compare_cell(cell, found, shared) for cell in experiment.cells], ", ".join(shared) or "nothing"


def _compare_cell(cell: Cell, found: Outcomes, shared: tuple[str, ...]) -> list[str]:
    one = found.find(cell)
    if one is None:
        return [cell.full_label, str(cell.value), "quoted" if cell.row is None else NOT_RUN, "", "", ""]
    losses = [loss for loss in one.values("final") if math.isfinite(loss)]
    loss = f"{statistics.fmean(losses):.3f}" if losses else ""
    besides = ", ".join(remove_common(one.scaled, shared))
    return [cell.full_label, str(cell.value), write_error(one), loss, str(len(one.runs)), besides]


def write_error(one: Outcome, unit: str = "") -> str:
    """The median of several runs with the deviation between seeds, `12.35 +- 0.40`; of one run the error with its 95 %
    interval over test images, `12.35 (11.7 to 13.0)`. On ImageNet top-5 follows after `/`; `fails` where it does."""
    found = [[value for value in one.values(metric) if math.isfinite(value)] for metric in ("error", "top5")]
    columns = [values for values in found if values]
    if not found[0]:
        return f"fails: {one.diverged} of {len(one.runs)} diverged"
    text = "/".join(f"{statistics.median(values):.2f}" for values in columns)
    if len(found[0]) > 1:
        text += f" +- {'/'.join(f'{statistics.stdev(values):.2f}' for values in columns)}"
    text += unit
    if intervals := one.intervals:
        text += f" ({'/'.join(f'{low:.1f} to {high:.1f}' for low, high in intervals)})"
    if one.diverged:
        text += f", {one.diverged} of {len(one.runs)} diverged"
    return f"{text} (fails)" if one.fails else text


class Correlation(NamedTuple):
    """The rank correlation of the papers' errors with ours, over rows of one data set that were scaled equally."""

    value: float
    rows: int
    data: str

    def __str__(self) -> str:
        return f"rank correlation with the paper over {self.rows} rows on {self.data}: {self.value:+.2f}"


def rank_values(values: Sequence[float]) -> list[float]:
    """Ranks from 1 up; equal values share the mean of their ranks."""
    return [(sum(v < value for v in values) + sum(v <= value for v in values) + 1) / 2 for value in values]


def correlate_ranks(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None for fewer than three pairs, or where all values of a column are equal."""
    if len(one) < 3 or min(len(set(one)), len(set(other))) == 1:
        return None
    return statistics.correlation(rank_values(one), rank_values(other))


def correlate(experiment: Experiment, found: Outcomes) -> Iterator[Correlation]:
    """One for each data set and each way of scaling."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[float, float]]] = {}
    for cell in experiment.cells:
        one, theirs = found.find(cell), cell.value.rank
        if one is not None and cell.row is not None and theirs is not None:
            pairs = groups.setdefault((cell.row.data, cell.test, one.scaled), [])
            pairs.append((theirs, statistics.median(one.values("error"))))
    for (data, test, _), pairs in groups.items():
        if (value := correlate_ranks(*zip(*pairs, strict=True))) is not None:
            yield Correlation(value, len(pairs), f"{data} by {test}" if test else data)
