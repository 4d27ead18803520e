"""v1 Figure 7 from results: how strongly the layers of plain and residual nets respond."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resnets.experiments.comparison import find_common
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Cell, Experiment
from resnets.report.pictures import label, new_figure, save

HEADER = ("row", "layers", "first", "median", "largest", "last", "runs")
_LINES = {  # a colour for each depth; plain nets are dashed
    "plain20": ("#a0661c", "--"),
    "plain56": ("#1f6f9f", "--"),
    "resnet20": ("#a0661c", "-"),
    "resnet56": ("#1f6f9f", "-"),
    "resnet110": ("#4c4c4c", "-"),
}


def average_responses(one: Outcome) -> list[float]:
    """The deviation of each layer's responses, the mean over the runs; empty where it was not measured."""
    each = [run["signal"]["responses"] for run in one.runs if "responses" in run.get("signal", {})]
    return [statistics.fmean(layer) for layer in zip(*each, strict=True)]


def find_curves(experiment: Experiment, found: Outcomes) -> Iterator[tuple[Cell, Outcome, list[float]]]:
    """The cells that have been measured."""
    for cell in experiment.cells:
        one = found.find(cell)
        if one is not None and (values := average_responses(one)):
            yield cell, one, values


def tabulate(experiment: Experiment, found: Outcomes) -> list[list[str]]:
    """A line of a table for each cell."""
    return [
        [
            cell.label,
            str(len(values)),
            *(f"{v:.3f}" for v in (values[0], statistics.median(values), max(values), values[-1])),
            str(len(one.runs)),
        ]
        for cell, one, values in find_curves(experiment, found)
    ]


def draw(experiment: Experiment, found: Outcomes, path: Path) -> Path:
    """Two panels, as in the paper: the layers in their order, and sorted by size. At least one cell is measured."""
    figure = new_figure("Figure 7", (7, 5.5))
    from matplotlib.ticker import MaxNLocator

    axes: Any = figure.subplots(2, 1)
    drawn = list(find_curves(experiment, found))
    for cell, one, values in drawn:
        colour, style = _LINES.get(cell.row.network if cell.row else "", ("#7a4fa3", "-"))
        text = f"{label(cell.label)} ({len(one.runs)} run{'s' * (len(one.runs) > 1)})"
        for axis, series in zip(axes, (values, sorted(values, reverse=True)), strict=True):
            axis.plot(range(1, len(series) + 1), series, style, color=colour, linewidth=1.2, label=text)
    scaled = ", ".join(find_common(one.scaled for _, one, _ in drawn)) or "nothing"
    title = f"{experiment.where}; ours: budget {drawn[0][1].budget}, scaled: {scaled}"
    figure.suptitle(textwrap.fill(label(title), 110), fontsize=8)
    for axis, order in zip(axes, ("layer, in order", "layer, sorted by size"), strict=True):
        axis.set(xlabel=order, ylabel="std of its responses", ylim=(0, None))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.25)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return save(figure, path, dpi=150)
