"""The papers' experiments as README shows them: a table, and Figure 1 as a picture for light and dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.experiments.agreement import find_agreement
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.comparison import correlate, find_common, write_error
from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Cell, Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report.curves import Curve, build_figure
from resnets.report.pictures import require_matplotlib, save

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


def _describe_missing(experiment: Experiment) -> str:
    command = f"resnets reproduce {experiment.name} --budget hour"
    where = f"{experiment.where} ({experiment.title})"
    return f"{where} has not been run yet: `{command}` runs it, and `make tables` puts it here."


def _write_scaled(experiment: Experiment, outcomes: Outcomes) -> str:
    there = [outcomes[row.name].scaled for row in experiment.rows if row.name in outcomes]
    return ", ".join(find_common(there)) or "nothing"


def write_table1(results: Path) -> str:
    experiment = EXPERIMENTS["table1"]
    if (best := find_best(experiment, results)) is None:
        return _describe_missing(experiment)
    budget, outcomes = best
    lines = [
        f"| {experiment.where}: {experiment.title} | the paper, % | ours, budget `{budget}`, % | the paper's order |",
        "|---|---|---|---|",
    ]
    for cell in experiment.cells:
        agrees = find_agreement(cell, experiment, outcomes)
        word = f"{agrees.word} ({agrees.why})" if agrees else "-"
        lines.append(f"| {cell.label} | {cell.value} | {_write_number(cell, outcomes, budget)} | {word} |")
    notes = [
        f"Scaled: {_write_scaled(experiment, outcomes)}.",
        *(f"{str(c).capitalize()}." for c in correlate(experiment, outcomes)),
    ]
    return "\n".join([*lines, "", *notes])


def _write_number(cell: Cell, outcomes: Outcomes, budget: str) -> str:
    one = outcomes.find(cell)
    if one is None:
        return "missing"
    return f"[{write_error(one)}](results/{budget}/{one.row}.json), {len(one.runs)} run{'s' * (len(one.runs) > 1)}"


def write_figure1(results: Path) -> str:
    experiment = EXPERIMENTS["figure1"]
    if (best := find_best(experiment, results)) is None:
        return _describe_missing(experiment)
    budget, outcomes = best
    light, dark = PICTURES
    curves = "; ".join(_describe(cell, outcomes) for cell in experiment.cells)
    return f"""\
<picture>
  <source media="(prefers-color-scheme: dark)" srcset="results/{dark}">
  <img src="results/{light}" alt="{experiment.where}: {curves}">
</picture>

{experiment.where}, budget `{budget}`. Scaled: {_write_scaled(experiment, outcomes)}."""


def _describe(cell: Cell, outcomes: Outcomes) -> str:
    one = outcomes.find(cell)
    return f"{cell.label}, " + (f"test error {write_error(one, ' %')}" if one else "missing")


TABLES = {"table1": write_table1, "figure1": write_figure1}


def draw(results: Path) -> None:
    """Draw Figure 1 into the folder of results, if it was run: loss dashed, on a log axis to the left; error solid."""
    experiment = EXPERIMENTS["figure1"]
    if (best := find_best(experiment, results)) is None:
        return
    matplotlib = require_matplotlib("Figure 1")
    for name, colour in PICTURES.items():
        style: dict[Any, Any] = dict.fromkeys(_TEXT, colour)
        with matplotlib.rc_context(style):
            save(build_figure(_list_curves(experiment, best[1]), (7, 4.2)), results / name, transparent=True)


def _list_curves(experiment: Experiment, outcomes: Outcomes) -> list[Curve]:
    """Every seed of each cell, the first in full strength and with a name."""
    found = []
    for cell, colour in zip(experiment.cells, _COLOURS, strict=True):
        one = outcomes.find(cell)
        for i, run in enumerate(one.runs if one else ()):
            name, strength = (_describe(cell, outcomes), 1.0) if i == 0 else (None, 0.45)
            found.append(Curve(run["curves"], "test", colour, name, strength))
    return found
