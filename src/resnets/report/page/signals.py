"""How signals travel, drawn: analyses of `resnets analyze`, and the two numbers a unit that every result carries."""

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
from resnets.report.page.inputs import Gathered

OF_ROWS = ("table1", "table2", "table3")  # between them every shortcut, order and depth
SIGNALS = {"size": ("signal: rms of x_l, trained", True), "zeros": ("share of x_l that is zero, trained", False)}


def section(gathered: Gathered) -> Html:
    analyses = [_analysis(path, data) for path, data in gathered.analyses.items()]
    rows = [_rows(EXPERIMENTS[name], gathered.found[budget], budget) for budget in gathered.budgets for name in OF_ROWS]
    rows += [_layers(EXPERIMENTS["figure7"], gathered.found[budget], budget) for budget in gathered.budgets]
    hint = tag("p", "No analysis: ", tag("code", "resnets analyze preresnet110 resnet110 --out analysis"), " and ",
               tag("code", "resnets report results analysis"), " put it here.", class_="missing")  # fmt: skip
    return join([*(analyses or [hint]), *filter(None, rows)])


def _analysis(path: Path, data: dict[str, Any]) -> Html:
    nets = data["analyses"]
    figures = []
    for panel in propagation.PANELS:
        lines = [
            plot.trace(i, net["label"], *_points(net, panel, name), line={"dash": dash}, showlegend=name == panel.name)
            for i, net in enumerate(nets)
            for name, dash in ((panel.name, "solid"), (panel.predicted, "dash"))
            if name
        ]
        if any(value is not None for line in lines for value in line["y"]):
            shape = plot.layout("unit l", "", log=panel.log, names=len(nets))
            figures.append(plot.figure(lines, shape, panel.title))
    told = [
        f"{net['label']}: {net['images']} images of {net['data']}, seed {net['seed']}, BN by {net['statistics']}"
        for net in nets
    ]
    made = data.get("provenance", {})
    source = tag("p", f"{path}: {'; '.join(told)}. Made by ", tag("code", made.get("command", "(unknown)")),
                 f", commit {made.get('commit')}.", class_="note")  # fmt: skip
    head = tag("h3", ", ".join(net["label"] for net in nets))
    return tag("section", head, source, tag("div", *figures, class_="figures"))


def _points(net: dict[str, Any], panel: propagation.Panel, name: str) -> tuple[list[int], list[float | None]]:
    at, values = propagation.line(net, panel, name)
    return at, [None if math.isnan(value) else value for value in values]


def _rows(experiment: Experiment, found: Outcomes, budget: str) -> Html | None:
    """Of each row's first seed that did not diverge."""
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
            plot.trace(i, words, list(range(len(signal[name]))), signal[name], mode="lines+markers")
            for i, (words, signal) in enumerate(drawn.values())
        ]
        shape = plot.layout("unit l", "", log=log, names=len(lines))
        figures.append(plot.figure(lines, shape, title, f"Budget {budget}, the first seed of each row."))
    head = tag("h3", f"The rows of {experiment.where}, budget {budget}")
    return tag("section", head, tag("div", *figures, class_="figures"))


def _layers(experiment: Experiment, found: Outcomes, budget: str) -> Html | None:
    """Figure 7 of v1: how strongly each layer responds."""
    stds = {cell.label: values for cell, _, values in responses.find_curves(experiment, found)}
    if not stds:
        return None
    lines = [plot.trace(i, label, list(range(1, len(y) + 1)), list(y)) for i, (label, y) in enumerate(stds.items())]
    shape = plot.layout("layer", "std of its responses", names=len(lines))
    drawn = plot.figure(
        lines, shape, f"{experiment.where}: {experiment.title}", f"Budget {budget}, the mean of all seeds."
    )
    return tag("section", tag("h3", f"{experiment.where}, budget {budget}"), tag("div", drawn, class_="figures"))
