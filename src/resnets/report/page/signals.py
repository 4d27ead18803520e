"""Draw how signals travel: analyses of `resnets analyze`, and the two numbers for each unit in every result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report import propagation, responses
from resnets.report.page import plot
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs

OF_ROWS = ("table1", "table2", "table3")  # together they have every shortcut, order and depth
SIGNALS = {"size": ("signal: rms of x_l, trained", True), "zeros": ("share of x_l that is zero, trained", False)}


def build_section(inputs: Inputs) -> Html:
    analyses = [_build_analysis(path, data) for path, data in inputs.analyses.items()]
    rows = [
        _build_rows(EXPERIMENTS[name], inputs.found[budget], budget) for budget in inputs.budgets for name in OF_ROWS
    ]
    rows += [_build_layers(EXPERIMENTS["figure7"], inputs.found[budget], budget) for budget in inputs.budgets]
    hint = tag("p", "No analysis: ", tag("code", "resnets analyze preresnet110 resnet110 --out analysis"), " and ",
               tag("code", "resnets report results analysis"), " put it here.", class_="missing")  # fmt: skip
    return join([*(analyses or [hint]), *filter(None, rows)])


def _build_analysis(path: Path, data: dict[str, Any]) -> Html:
    nets = data["analyses"]
    figures = []
    for panel in propagation.PANELS:
        lines = [
            plot.make_trace(
                i, net["label"], *_read_points(net, panel, name), line={"dash": dash}, showlegend=name == panel.name
            )
            for i, net in enumerate(nets)
            for name, dash in ((panel.name, "solid"), (panel.predicted, "dash"))
            if name
        ]
        if any(value is not None for line in lines for value in line["y"]):
            shape = plot.make_layout("unit l", "", log=panel.log, names=len(nets))
            figures.append(plot.build_figure(lines, shape, panel.title))
    words = [
        f"{net['label']}: {net['images']} images of {net['data']}, seed {net['seed']}, BN by {net['statistics']}"
        for net in nets
    ]
    made = data.get("provenance", {})
    source = tag("p", f"{path}: {'; '.join(words)}. Made by ", tag("code", made.get("command", "(unknown)")),
                 f", commit {made.get('commit')}.", class_="note")  # fmt: skip
    head = tag("h3", ", ".join(net["label"] for net in nets))
    return tag("section", head, source, tag("div", *figures, class_="figures"))


def _read_points(net: dict[str, Any], panel: propagation.Panel, name: str) -> tuple[list[int], list[float | None]]:
    at, values = propagation.read_line(net, panel, name)
    return at, [None if math.isnan(value) else value for value in values]


def _build_rows(experiment: Experiment, found: Outcomes, budget: str) -> Html | None:
    """The signals of the rows, of the first seed that did not diverge."""
    drawn: dict[str, tuple[str, dict[str, list[float]]]] = {}
    for cell in experiment.cells:
        one = found.find(cell)
        signal = next((run["signal"] for run in one.runs if "signal" in run), None) if one else None
        if one and signal:
            drawn.setdefault(one.row, (cell.label, signal))
    if not drawn:
        return None
    figures = []
    for name, (title, log) in SIGNALS.items():
        lines = [
            plot.make_trace(i, words, list(range(len(signal[name]))), signal[name], mode="lines+markers")
            for i, (words, signal) in enumerate(drawn.values())
        ]
        shape = plot.make_layout("unit l", "", log=log, names=len(lines))
        figures.append(plot.build_figure(lines, shape, title, f"Budget {budget}, the first seed of each row."))
    head = tag("h3", f"The rows of {experiment.where}, budget {budget}")
    return tag("section", head, tag("div", *figures, class_="figures"))


def _build_layers(experiment: Experiment, found: Outcomes, budget: str) -> Html | None:
    """Figure 7 of v1: how strongly each layer responds."""
    stds = {cell.label: values for cell, _, values in responses.find_curves(experiment, found)}
    if not stds:
        return None
    lines = [
        plot.make_trace(i, label, list(range(1, len(y) + 1)), list(y)) for i, (label, y) in enumerate(stds.items())
    ]
    shape = plot.make_layout("layer", "std of its responses", names=len(lines))
    drawn = plot.build_figure(
        lines, shape, f"{experiment.where}: {experiment.title}", f"Budget {budget}, the mean of all seeds."
    )
    return tag("section", tag("h3", f"{experiment.where}, budget {budget}"), tag("div", drawn, class_="figures"))
