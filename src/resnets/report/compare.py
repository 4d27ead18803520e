"""Compare runs: what differs between them, their errors, and whether the difference may be chance."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resnets.differences import find_differences, label_runs
from resnets.errors import UserError
from resnets.experiments.outcomes import student
from resnets.report.listing import RunSummary, summarize_run
from resnets.runs import Run, RunKey, group_variants


@dataclass(frozen=True)
class Difference:
    """Between the errors of two variants; each has one run or several seeds."""

    variant: str
    against: str
    error_on: str
    points: float  # per cent of the images; above 0 where `variant` has the higher error
    beyond_chance: bool
    why: str

    def __str__(self) -> str:
        word = "beyond chance" if self.beyond_chance else "within chance"
        what = f"{self.variant} against {self.against}: {self.error_on} error"
        return f"{what} {self.points:+.2f} points, {word} ({self.why})"


@dataclass(frozen=True)
class RunComparison:
    labels: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]  # every field of the configuration that differs, with the value of each run
    runs: tuple[RunSummary, ...]
    differences: tuple[Difference, ...]  # of each variant from the first

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "fields": {name: dict(zip(self.labels, values, strict=True)) for name, values in self.fields.items()},
            "runs": [
                {"label": label, **run.to_dict(), "path": str(run.path)}
                for label, run in zip(self.labels, self.runs, strict=True)
            ],
            "differences": [dataclasses.asdict(difference) for difference in self.differences],
        }


def compare_runs(runs: Sequence[Run]) -> RunComparison:
    """Compare two runs or more. Runs that differ only in the seed are one variant, and are listed together.

    The first variant is the one that the others are compared with.

    >>> runs = [resnets.train("preresnet20", data="cifar10", epochs=1, seed=seed) for seed in (0, 1)]
    >>> comparison = resnets.compare_runs(runs)
    """
    if len(runs) < 2:
        raise UserError(f"there is nothing to compare with {runs[0].path if runs else 'no run'}; name two runs.")
    runs = [run for seeds in group_variants(runs, lambda run: run.identity).values() for run in seeds]
    keys = [run.identity for run in runs]
    summaries = tuple(map(summarize_run, runs))
    names = name_runs(runs, keys)
    return RunComparison(tuple(names), find_differences(keys), summaries, tuple(_compare_variants(keys, summaries)))


def name_runs(runs: Sequence[Run], keys: Sequence[RunKey]) -> list[str]:
    """Label runs by what differs, or by the names of their folders where nothing does."""
    names = label_runs(keys)
    return names if len(set(names)) == len(names) else [run.path.name for run in runs]


def _compare_variants(keys: Sequence[RunKey], runs: Sequence[RunSummary]) -> list[Difference]:
    """Each variant against the first, where both have finished runs with an error on the same kind of images."""
    finished = [(key, run) for key, run in zip(keys, runs, strict=True) if run.state == "finished" and run.interval]
    variants = group_variants(finished, lambda pair: pair[0])
    scored = [[run for _, run in pairs] for pairs in variants.values()]
    groups = list(zip(label_runs(list(variants)), scored, strict=True))
    return [_compare(one, groups[0]) for one in groups[1:] if one[1][0].error_on == groups[0][1][0].error_on]


def _compare(one: tuple[str, list[RunSummary]], other: tuple[str, list[RunSummary]]) -> Difference:
    a, b = ([run.last_error or 0.0 for run in runs] for _, runs in (one, other))
    points = statistics.fmean(a) - statistics.fmean(b)
    if len(a) > 1 and len(b) > 1:
        freedom = len(a) + len(b) - 2
        variance = (statistics.variance(a) * (len(a) - 1) + statistics.variance(b) * (len(b) - 1)) / freedom
        bound = student(freedom) * math.sqrt(variance * (1 / len(a) + 1 / len(b)))
        beyond, why = abs(points) > bound, f"{len(a)} and {len(b)} seeds explain {bound:.2f} points, Student's t at 5 %"
    else:
        low, high = _join_intervals(one[1]), _join_intervals(other[1])
        beyond = low[0] > high[1] or high[0] > low[1]
        why = f"the 95 % intervals over images {'do not overlap' if beyond else 'overlap'}; seeds may differ by more"
    return Difference(one[0], other[0], one[1][0].error_on or "", points, beyond, why)


def _join_intervals(runs: Sequence[RunSummary]) -> tuple[float, float]:
    intervals = [run.interval for run in runs if run.interval]
    return min(low for low, _ in intervals), max(high for _, high in intervals)
