"""How signals travel: analyses of `resnets analyze`, and the two numbers for each unit in every result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report import propagation, responses
from resnets.report.page.chart import build_chart, make_line
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs
from resnets.report.page.tables import build_fold

OF_ROWS = ("table1", "table2", "table3")  # together they have every shortcut, order and depth
SIGNALS = {"size": ("signal: rms of x_l, trained", True), "zeros": ("share of x_l that is zero, trained", False)}


def build_section(inputs: Inputs) -> Html:
    """A fold for each file of analyses and for the rows of each budget."""
    analyses = [_build_analysis(path, data) for path, data in inputs.analyses.items()]
    rows = [
        _build_rows(EXPERIMENTS[name], inputs.found[budget], budget) for name in OF_ROWS for budget in inputs.budgets
    ]
    layers = [_build_layers(EXPERIMENTS["figure7"], inputs.found[budget], budget) for budget in inputs.budgets]
    hint = tag("p", tag("code", "resnets analyze preresnet110 resnet110 --out analysis"), " and ",
               tag("code", "resnets report results analysis"), " put analyses of your own here.",
               class_="note")  # fmt: skip
    return join([*filter(None, layers), *analyses, *filter(None, rows), hint])


def _build_analysis(path: Path, data: dict[str, Any]) -> Html:
    nets = data["analyses"]
    charts = []
    for panel in propagation.PANELS:
        lines = [
            make_line(i, net["label"], *_read_points(net, panel, name), dash=name == panel.predicted)
            for i, net in enumerate(nets)
            for name in (panel.name, panel.predicted)
            if name
        ]
        if any(value is not None for line in lines for value in line["y"]):
            charts.append(build_chart(panel.title, lines, x="unit l", y="", log=panel.log))
    words = [
        f"{net['label']}: {net['images']} images of {net['data']}, seed {net['seed']}, BN by {net['statistics']}"
        for net in nets
    ]
    made = data.get("provenance", {})
    source = tag("p", f"{path}: {'; '.join(words)}. Made by ", tag("code", made.get("command", "(unknown)")),
                 f", commit {made.get('commit')}.", class_="note")  # fmt: skip
    return build_fold(
        f"Eight quantities along the units: {path.parent.name}", source, tag("div", *charts, class_="figures")
    )


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
    charts = []
    for name, (title, log) in SIGNALS.items():
        lines = [
            make_line(i, words, range(len(signal[name])), signal[name])
            for i, (words, signal) in enumerate(drawn.values())
        ]
        caption = f"Budget {budget}, the first seed of each row."
        charts.append(build_chart(title, lines, x="unit l", y="", log=log, caption=caption))
    head = f"After training: the rows of {experiment.where}, budget {budget}"
    return build_fold(head, tag("div", *charts, class_="figures"))


def _build_layers(experiment: Experiment, found: Outcomes, budget: str) -> Html | None:
    """Figure 7 of v1: how strongly each layer responds."""
    stds = {cell.label: values for cell, _, values in responses.find_curves(experiment, found)}
    if not stds:
        return None
    lines = [make_line(i, label, range(1, len(y) + 1), y) for i, (label, y) in enumerate(stds.items())]
    title = f"{experiment.where}: {experiment.title}"
    caption = f"Budget {budget}, the mean of all seeds. In v1 the layers of residual nets respond less."
    return tag("div", build_chart(title, lines, x="layer", y="std of its responses", caption=caption), class_="figures")
