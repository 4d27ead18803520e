"""The unit explorer: two units side by side, chosen by shortcut, order, kernels and depth.

Here are its markup and its data; `unit.js` draws the unit and `explorer.js` does the rest. Every number comes from
`results/`, as `resnets reproduce` wrote it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from resnets.describe.drawing import kinds
from resnets.experiments.outcomes import Outcome
from resnets.papers.rows import Cell
from resnets.papers.tables import EXPERIMENTS
from resnets.papers.variants import DEEPEST, DEEPEST_KINDS, DEPTHS, TABLE1, Variant, list_variants, variant_of
from resnets.report.page import equations, numbers
from resnets.report.page.chart import embed, make_line
from resnets.report.page.curves import choose_split
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs
from resnets.report.page.tables import build_fold
from resnets.unit_spec import KERNELS, ORDERS, parse_shortcut

ORDER_NAMES = {
    "original": "original: ReLU after the addition",
    "bn_after_add": "BN after the addition",
    "relu_before_add": "ReLU before the addition",
    "relu_preact": "ReLU-only pre-activation",
    "full_preact": "full pre-activation",
}
KERNEL_NAMES = {"basic": "two 3x3", "bottleneck": "1x1, 3x3, 1x1", "one_layer": "one 3x3"}
FIELDS = {"shortcut": "Shortcut", "order": "Order of BN and ReLU", "kernels": "Convolutions", "layers": "Layers"}
START = (Variant("identity", "original", "basic", 110), Variant("scale:0.5:1", "original", "basic", 110))
LESSONS = {  # comparisons to begin with
    "Half the signal": START,
    "A gate on the shortcut": (
        Variant("identity", "original", "basic", 110), Variant("exclusive_gate:0", "original", "basic", 110),
    ),
    "1001 layers, old and new": (
        Variant("identity", "original", "bottleneck", 1001), Variant("identity", "full_preact", "bottleneck", 1001),
    ),
    "ReLU before the addition": (
        Variant("identity", "relu_before_add", "basic", 110), Variant("identity", "full_preact", "basic", 110),
    ),
    "No shortcut at all": (Variant("identity", "original", "basic", 56), Variant("plain", "original", "basic", 56)),
}  # fmt: skip
CHARTS = {
    "signal": ("Size of the signal along the units", "Root mean square of x_l. Solid: new weights. Dashed: trained."),
    "gradient": (
        "Size of the gradient along the units",
        "|∂E/∂x_l|, through the shortcuts and through F. Solid: new weights. Dashed: trained, if analysed.",
    ),
    "product": (
        "What the shortcuts let through",
        "The product of λ from unit l to the last unit of the same size: the factor of equations (7) and (8).",
    ),
    "training": (
        "Training",
        "Training loss dashed, left; test error solid, right (a single mark where it was measured only at the end).",
    ),
}


def build_section(inputs: Inputs) -> Html:
    lessons = [
        tag("button", words, type="button", data_units=";".join(map(write_key, pair)))
        for words, pair in LESSONS.items()
    ]
    charts = [
        tag("figure", tag("figcaption", title), tag("div", class_="plot"), tag("p", caption, class_="note"),
            class_="chart", data_chart=name)
        for name, (title, caption) in CHARTS.items()
    ]  # fmt: skip
    return join(
        [
            tag("p", "Choose two units, or begin with one of these comparisons. The drawing is the unit as ",
                tag("code", "resnets info"), " draws it."),
            tag("div", *lessons, class_="lessons", role="group", aria_label="Comparisons"),
            tag("div", *(_build_unit(side, unit) for side, unit in zip("AB", START, strict=True)), class_="units"),
            tag("div", *charts, class_="figures"),
            _build_origins(inputs),
            embed(collect(inputs), id="explorer-data"),
            tag("noscript", tag("p", "The explorer needs JavaScript.")),
        ]
    )  # fmt: skip


def write_key(variant: Variant) -> str:
    return "|".join([variant.shortcut, variant.order, variant.kernels, str(variant.layers)])


def _build_unit(side: str, chosen: Variant) -> Html:
    """One of the two: what can be chosen, and places that `explorer.js` fills."""
    options = {
        "shortcut": {key: equations.name_shortcut(parse_shortcut(key)) for key in TABLE1},
        "order": ORDER_NAMES,
        "kernels": KERNEL_NAMES,
        "layers": {str(layers): str(layers) for layers in (*DEPTHS, DEEPEST)},
    }
    choices = [
        tag("label", words, tag("select", *(
            tag("option", text, value=value, selected=value == str(getattr(chosen, field)))
            for value, text in options[field].items()
        ), name=field, autocomplete="off"))
        for field, words in FIELDS.items()
    ]  # fmt: skip
    return tag(
        "section",
        tag("h3", f"Unit {side}", tag("span", class_="swatch")),
        tag("div", *choices, class_="choices"),
        tag("div", class_="drawing"),
        tag("div", class_="equations", tabindex="0", role="group", aria_label=f"Equations of unit {side}"),
        tag("p", class_="meaning", aria_live="polite"),
        tag("dl", class_="facts"),
        class_="unit",
        data_side=side.lower(),
        aria_label=f"Unit {side}",
    )


def _build_origins(inputs: Inputs) -> Html:
    """Where the analyses come from; without any, the command that makes them."""
    command = tag("code", "resnets reproduce signals")
    files = [*inputs.signals.values(), *inputs.trained.values()]
    if not files:
        return tag("p", "There are no signals: ", command, " makes them.", class_="missing")
    items = []
    for data in files:
        made = data["provenance"]
        what = f"trained row {data['row']}, budget {data['budget']}" if "row" in data else "new weights"
        items.append(
            tag("li", tag("code", data["path"]), f": {what}, {data['images']} training images of {data['data']}, seed ",
                f"{data['seed']}. ", tag("code", made["command"]), f", commit {made['commit']}, {made['began']}, ",
                f"torch {made['versions'].get('torch')}, {made['machine']['cpu']}.")
        )  # fmt: skip
    return build_fold("Where the curves come from", tag("ul", *items, class_="note"))


# --- data -------------------------------------------------------------------------------------


def collect(inputs: Inputs) -> dict[str, Any]:
    """Everything that the explorer shows, as plain data."""
    return {
        "shortcuts": {key: _describe_shortcut(key) for key in TABLE1},
        "orders": {
            key: {"math": equations.write_after(key), "after": list(order.after)} for key, order in ORDERS.items()
        },
        "deepest": {"layers": str(DEEPEST), "kernels": "bottleneck", "kinds": list(DEEPEST_KINDS)},
        "equations": _write_templates(),
        "pictures": _draw_pictures(),
        "signals": {f"{layers}-{kernels}": _index(data) for (layers, kernels), data in inputs.signals.items()},
        "rows": _collect_rows(inputs),
    }


def _describe_shortcut(key: str) -> dict[str, Any]:
    shortcut = parse_shortcut(key)
    return {"math": equations.write_addition(shortcut), "factor": equations.find_constant(shortcut)}


def _write_templates() -> dict[str, str]:
    """The general equations, and those with places for FIRST, LAST, UNTIL and FACTOR."""
    general = equations.write_general()
    filled = equations.Between(*map(equations.number, ("FIRST", "LAST", "UNTIL", "FACTOR")))
    return {
        "signal": equations.write_signal(general),
        "gradient": equations.write_gradient(general),
        "signal_filled": equations.write_signal(filled),
        "gradient_filled": equations.write_gradient(filled),
    }


@cache
def _draw_pictures() -> dict[str, Any]:
    """The most frequent unit of each variant: the depth does not change it."""
    return {
        f"{variant.shortcut}|{variant.order}|{kernels}": kinds(variant.spec.units())[0].picture.to_dict()
        for kernels in KERNELS
        for variant in list_variants(110, kernels)
    }


def _index(data: dict[str, Any]) -> dict[str, Any]:
    """A file of signals, by shortcut and order."""
    names = ("rms", "gradient", "product", "predicted", "missed", "cosine")
    each = {f"{one['shortcut']}|{one['order']}": {name: one[name] for name in names} for one in data["signals"]}
    return {"at": data["at"], "spans": data["spans"], "images": data["images"], "units": each}


def _collect_rows(inputs: Inputs) -> dict[str, Any]:
    """What the papers and we found for the variants that are rows of their tables."""
    found: dict[str, Any] = {}
    for experiment in EXPERIMENTS.values():
        for cell in experiment.cells:
            variant = variant_of(cell.row) if cell.row else None
            if cell.row is None or variant is None:
                continue
            known = found.setdefault(write_key(variant), {"row": cell.row.name, "paper": "", "where": experiment.where})
            if not known["paper"] and str(cell.value):
                known |= {"paper": _write_paper(cell), "where": experiment.where}
            if "ours" not in known and (one := inputs.find_best(cell.row.name)):
                known |= _describe_outcome(one)
                if trained := inputs.trained.get((one.budget, one.row)):
                    known["trained"] = _describe_trained(trained)
    return found


def _write_paper(cell: Cell) -> str:
    words = numbers.write_plus_minus(str(cell.value))
    return words if cell.value.fails else f"{words} %"


def _describe_outcome(one: Outcome) -> dict[str, Any]:
    """The error with its interval and seeds, the curves and the signal of the first seed that did not diverge."""
    run = next((run for run in one.runs if "failed" not in run["result"]), one.runs[0])
    curves = {kind: make_line(0, "", *points) for kind, points in run["curves"].items()}
    split = choose_split(one)
    drawn = {"loss": curves.get("loss"), "error": curves.get(split)}
    return {
        "ours": numbers.build_number(one),
        "budget": one.budget,
        "scaled": ", ".join(one.scaled) or "nothing",
        "curves": {kind: {"x": line["x"], "y": line["y"]} for kind, line in drawn.items() if line},
        "size": run.get("signal", {}).get("size", []),
    }


def _describe_trained(data: dict[str, Any]) -> dict[str, Any]:
    (one, *_) = data["signals"]
    return {"at": data["at"], "rms": one["rms"], "gradient": one["gradient"], "product": one["product"]}
