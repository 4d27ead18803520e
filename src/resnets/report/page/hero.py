"""The first screen: what the papers found, in five sentences, with Figure 1 and Table 1 of v2."""

from __future__ import annotations

from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS, V2
from resnets.report.page import curves, tables
from resnets.report.page.html import Html, tag
from resnets.report.page.inputs import Inputs

SENTENCES = (
    "Stack more layers and a plain network gets worse, even on the images that it is trained on.",
    "A residual unit adds its input to what its layers compute, so that it only has to learn a change; networks of "
    "such units get better with depth.",
    "Where nothing but the addition stands on the way of that input, the signal of every unit reaches every later unit "
    "directly, and the gradient comes back the same way.",
    "Anything on that way, be it a scale, a gate, a convolution or dropout, multiplies from unit to unit and makes the "
    "network harder to train.",
    "With BN and ReLU in front of the weights the way is free, and a network of 1001 layers errs on {proposed:.2f} % "
    "of CIFAR-10's test images instead of {original:.2f} %.",
)


def build(inputs: Inputs) -> Html:
    original, proposed = (V2[Row(name)].error for name in ("resnet1001", "preresnet1001"))
    sentences = [tag("li", words.format(original=original, proposed=proposed)) for words in SENTENCES]
    return tag(
        "section",
        tag("h2", "What the papers found"),
        tag("ol", *sentences, class_="found"),
        tag("div", tag("div", _build_figure1(inputs)), tag("div", _build_table1(inputs)), class_="pair"),
        id="found",
    )


def _build_figure1(inputs: Inputs) -> Html:
    experiment = EXPERIMENTS["figure1"]
    ranked = inputs.rank_budgets(experiment)
    if not ranked:
        return _say_missing("figure1", "v2 Figure 1")
    errors = ", ".join(f"{cell.label.rpartition(', ')[2]} {cell.value} %" for cell in experiment.cells)
    caption = f"In the paper the proposed unit learns sooner and ends better: {errors} after 64,000 iterations."
    return curves.build_panel("Figure 1: 1001 layers", experiment.cells, inputs.found[ranked[0]], ranked[0], caption)


def _build_table1(inputs: Inputs) -> Html:
    experiment = EXPERIMENTS["table1"]
    ranked = inputs.rank_budgets(experiment)
    if not ranked:
        return _say_missing("table1", "v2 Table 1")
    return tables.build_comparison(experiment, inputs, ranked[0], short=True)


def _say_missing(name: str, where: str) -> Html:
    return tag("p", f"{where} was not run: ", tag("code", f"resnets reproduce {name}"), " runs it.", class_="missing")
