"""The papers' experiments as README shows them: a table, and Figure 1 as a picture for light and dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.experiments.agreement import agreement
from resnets.experiments.comparison import common, correlations, error_text, ours
from resnets.experiments.outcomes import Outcome, read
from resnets.papers.rows import Cell, Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report.pictures import save

PUBLISHED = ("paper", "day", "hour")  # the best budget first; smoke shows nothing but that it runs
PICTURES = {"figure1.svg": "#1b1b1b", "figure1-dark.svg": "#e6e6e6"}  # and the colour of their text
_TEXT = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_COLOURS = ("#7d7d7d", "#d64545")  # seen on light and on dark


def found(experiment: Experiment, results: Path) -> tuple[str, dict[str, Outcome]] | None:
    """The best budget that has a row of an experiment, and its rows."""
    for budget in PUBLISHED:
        outcomes = read(results / budget)
        if any(row.name in outcomes for row in experiment.rows):
            return budget, outcomes
    return None


def _not_yet(experiment: Experiment) -> str:
    command = f"resnets reproduce {experiment.name} --budget hour"
    told = f"{experiment.where} ({experiment.title}) has not been run yet"
    return f"{told}: `{command}` runs it, and `make tables` puts it here."


def _scaled(experiment: Experiment, outcomes: dict[str, Outcome]) -> str:
    there = [outcomes[row.name].scaled for row in experiment.rows if row.name in outcomes]
    return ", ".join(common(there)) or "nothing"


def table1(results: Path) -> str:
    experiment = EXPERIMENTS["table1"]
    if (best := found(experiment, results)) is None:
        return _not_yet(experiment)
    budget, outcomes = best
    lines = [
        f"| {experiment.where}: {experiment.title} | the paper, % | ours, budget `{budget}`, % | the paper's order |",
        "|---|---|---|---|",
    ]
    for cell in experiment.cells:
        agrees = agreement(cell, experiment, outcomes)
        word = f"{agrees.word} ({agrees.why})" if agrees else "-"
        lines.append(f"| {cell.label} | {cell.value} | {_number(cell, outcomes, budget)} | {word} |")
    told = [
        f"Scaled: {_scaled(experiment, outcomes)}.",
        *(f"{str(c).capitalize()}." for c in correlations(experiment, outcomes)),
    ]
    return "\n".join([*lines, "", *told])


def _number(cell: Cell, outcomes: dict[str, Outcome], budget: str) -> str:
    one = ours(cell, outcomes)
    if one is None:
        return "missing"
    return f"[{error_text(one)}](results/{budget}/{one.row}.json), {len(one.runs)} run{'s' * (len(one.runs) > 1)}"


def figure1(results: Path) -> str:
    experiment = EXPERIMENTS["figure1"]
    if (best := found(experiment, results)) is None:
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


def _told(cell: Cell, outcomes: dict[str, Outcome]) -> str:
    one = ours(cell, outcomes)
    return f"{cell.label}, " + (f"test error {error_text(one, ' %')}" if one else "missing")


TABLES = {"table1": table1, "figure1": figure1}


def draw(results: Path) -> None:
    """The pictures beside the results, where there are any: loss dashed, on a log axis to the left; error solid."""
    experiment = EXPERIMENTS["figure1"]
    if (best := found(experiment, results)) is None:
        return
    try:
        import matplotlib
    except ImportError:
        raise UserError("drawing Figure 1 needs the extra: pip install 'resnets[plot]'.") from None
    for name, colour in PICTURES.items():
        style: dict[Any, Any] = dict.fromkeys(_TEXT, colour)
        with matplotlib.rc_context(style):
            save(_figure(experiment, best[1]), results / name, transparent=True)


def _figure(experiment: Experiment, outcomes: dict[str, Outcome]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    losses: Any = figure.add_subplot()
    errors: Any = losses.twinx()
    for cell, colour in zip(experiment.cells, _COLOURS, strict=True):
        one = ours(cell, outcomes)
        for i, run in enumerate(one.runs if one else ()):
            curves, strength = run["curves"], 1 if i == 0 else 0.45
            if "loss" in curves:
                losses.plot(*curves["loss"], "--", color=colour, alpha=strength, linewidth=1.2)
            steps, values = curves.get("test", ([], []))
            if len(steps) == 1:  # measured at the end alone: the training error shows the way there
                errors.plot(*curves["training"], color=colour, alpha=strength, linewidth=0.6)
            name = _told(cell, outcomes) if i == 0 else None
            errors.plot(steps, values, "o-" if len(steps) == 1 else "-", color=colour, alpha=strength, label=name)
    losses.set(xlabel="iterations", ylabel="training loss (dashed)", yscale="log")
    losses.yaxis.set_minor_locator(LogLocator(subs=(1.5, 2, 3, 5, 7)))
    for axis in (losses.yaxis.set_major_formatter, losses.yaxis.set_minor_formatter):
        axis(FuncFormatter(lambda value, _: f"{value:g}"))
    errors.set(ylabel="error, % (solid; thin: of training)", ylim=(0, None))
    losses.grid(alpha=0.25)
    figure.legend(frameon=False, loc="outside lower center", ncols=1)
    return figure
