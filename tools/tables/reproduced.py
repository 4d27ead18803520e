"""The papers' experiments as README shows them: a table, and Figure 1 as a picture for light and dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.experiments.agreement import find_agreement
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.comparison import correlate, find_common, write_error
from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Cell, Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report.curves import Curve, build_figure
from resnets.report.pictures import save

PUBLISHED = tuple(name for name in BUDGETS if name != "smoke")  # the best first; smoke only shows that it runs
PICTURES = {"figure1.svg": "#1b1b1b", "figure1-dark.svg": "#e6e6e6"}  # and the colour of their text
_TEXT = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_COLOURS = ("#7d7d7d", "#d64545")  # seen on light and on dark


def find_best(experiment: Experiment, results: Path) -> tuple[str, Outcomes] | None:
    """The best budget that has a row of an experiment, and its rows."""
    for budget in PUBLISHED:
        outcomes = Outcomes.read(results / budget)
        if any(row.name in outcomes for row in experiment.rows):
            return budget, outcomes
    return None


def _not_yet(experiment: Experiment) -> str:
    command = f"resnets reproduce {experiment.name} --budget hour"
    told = f"{experiment.where} ({experiment.title}) has not been run yet"
    return f"{told}: `{command}` runs it, and `make tables` puts it here."


def _scaled(experiment: Experiment, outcomes: Outcomes) -> str:
    there = [outcomes[row.name].scaled for row in experiment.rows if row.name in outcomes]
    return ", ".join(find_common(there)) or "nothing"


def table1(results: Path) -> str:
    experiment = EXPERIMENTS["table1"]
    if (best := find_best(experiment, results)) is None:
        return _not_yet(experiment)
    budget, outcomes = best
    lines = [
        f"| {experiment.where}: {experiment.title} | the paper, % | ours, budget `{budget}`, % | the paper's order |",
        "|---|---|---|---|",
    ]
    for cell in experiment.cells:
        agrees = find_agreement(cell, experiment, outcomes)
        word = f"{agrees.word} ({agrees.why})" if agrees else "-"
        lines.append(f"| {cell.label} | {cell.value} | {_number(cell, outcomes, budget)} | {word} |")
    told = [
        f"Scaled: {_scaled(experiment, outcomes)}.",
        *(f"{str(c).capitalize()}." for c in correlate(experiment, outcomes)),
    ]
    return "\n".join([*lines, "", *told])


def _number(cell: Cell, outcomes: Outcomes, budget: str) -> str:
    one = outcomes.find(cell)
    if one is None:
        return "missing"
    return f"[{write_error(one)}](results/{budget}/{one.row}.json), {len(one.runs)} run{'s' * (len(one.runs) > 1)}"


def figure1(results: Path) -> str:
    experiment = EXPERIMENTS["figure1"]
    if (best := find_best(experiment, results)) is None:
        return _not_yet(experiment)
    budget, outcomes = best
    light, dark = PICTURES
    told = "; ".join(_told(cell, outcomes) for cell in experiment.cells)
    return f"""\
<picture>
  <source media="(prefers-color-scheme: dark)" srcset="results/{dark}">
  <img src="results/{light}" alt="{experiment.where}: {told}">
</picture>

{experiment.where}, budget `{budget}`. Scaled: {_scaled(experiment, outcomes)}."""


def _told(cell: Cell, outcomes: Outcomes) -> str:
    one = outcomes.find(cell)
    return f"{cell.label}, " + (f"test error {write_error(one, ' %')}" if one else "missing")


TABLES = {"table1": table1, "figure1": figure1}


def draw(results: Path) -> None:
    """The pictures beside the results, where there are any: loss dashed, on a log axis to the left; error solid."""
    experiment = EXPERIMENTS["figure1"]
    if (best := find_best(experiment, results)) is None:
        return
    try:
        import matplotlib
    except ImportError:
        raise UserError("drawing Figure 1 needs the extra: pip install 'resnets[plot]'.") from None
    for name, colour in PICTURES.items():
        style: dict[Any, Any] = dict.fromkeys(_TEXT, colour)
        with matplotlib.rc_context(style):
            save(build_figure(_curves(experiment, best[1]), (7, 4.2)), results / name, transparent=True)


def _curves(experiment: Experiment, outcomes: Outcomes) -> list[Curve]:
    """Every seed of each cell, the first in full strength and with a name."""
    found = []
    for cell, colour in zip(experiment.cells, _COLOURS, strict=True):
        one = outcomes.find(cell)
        for i, run in enumerate(one.runs if one else ()):
            name, strength = (_told(cell, outcomes), 1.0) if i == 0 else (None, 0.45)
            found.append(Curve(run["curves"], "test", colour, name, strength))
    return found
