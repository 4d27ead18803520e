"""Draw the papers' figures from our results: training loss dashed, on a log axis to the left; error solid, right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resnets.experiments.comparison import write_error
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Cell
from resnets.papers.tables import EXPERIMENTS
from resnets.report.curves import is_measured_once
from resnets.report.page import plot, provenance
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs

PANELS: dict[str, dict[str, tuple[int, ...]]] = {  # experiment -> title -> which of its cells
    "figure1": {"": (0, 1)},
    "figure3": {"(a)": (0, 1), "(b)": (0, 2), "(c)": (0, 3), "(d)": (0, 4)},
    "figure6": {"left": (0, 1), "right": (2, 3)},
    "plain-cifar": {"plain nets": (0, 1, 2, 3, 4), "residual nets": (5, 6, 7, 8, 9, 10)},
    "gate-bias": {"": tuple(range(11))},
}


def build_section(inputs: Inputs) -> Html:
    """Every figure, once for each budget that has a curve of it; without one, the command that makes it."""
    return join(_build_experiment(name, inputs) for name in PANELS)


def _build_experiment(name: str, inputs: Inputs) -> Html:
    experiment = EXPERIMENTS[name]
    head = tag("h3", f"{experiment.where}: {experiment.title}")
    figures = [
        build_panel(
            f"{experiment.where} {title}".strip(), [experiment.cells[i] for i in which], inputs.found[budget], budget
        )
        for budget in inputs.budgets
        if any(row.name in inputs.found[budget] for row in experiment.rows)
        for title, which in PANELS[name].items()
    ]
    missing = tag("p", "Missing: ", tag("code", f"resnets reproduce {name}"), " makes it.", class_="missing")
    return tag("section", head, tag("div", *figures, class_="figures") if figures else missing, id=f"curves-{name}")


def build_panel(title: str, cells: Sequence[Cell], found: Outcomes, budget: str) -> Html:
    there = [cell for cell in cells if found.find(cell)]
    absent = [cell.label for cell in cells if cell not in there]
    if not there:
        return tag("p", f"{title}, budget {budget}, missing: {'; '.join(absent)}.", class_="missing")
    outcomes = [found[cell.row.name] for cell in there if cell.row]
    data = [
        line for i, (cell, one) in enumerate(zip(there, outcomes, strict=True)) for line in _make_traces(i, cell, one)
    ]
    seeds = " or ".join(map(str, sorted({len(one.runs) for one in outcomes})))
    notes = [f"Budget {budget}, seeds: {seeds}, all drawn."]
    if any(is_measured_once(run["curves"], _choose_split(one)) for one in outcomes for run in one.runs):
        notes.append("The error was measured only at the end (the last mark); thin: error on training batches.")
    notes += [f"Missing: {'; '.join(absent)}."] * bool(absent)
    origins = [join([" ", provenance.build_button(provenance.name_box(budget, one.row), one.row)]) for one in outcomes]
    return plot.build_figure(data, _make_layout(len(there)), title, join([" ".join(notes), " From:", *origins]))


def _make_layout(names: int) -> dict[str, Any]:
    right = {
        "title": {"text": "error, % (solid)"}, "overlaying": "y", "side": "right", "rangemode": "tozero",
        "automargin": True, "zeroline": False, "showgrid": False, "tickmode": "auto",
    }  # fmt: skip
    return plot.make_layout("iterations", "training loss (dashed)", log=True, names=names, yaxis2=right)


def _choose_split(one: Outcome) -> str:
    return "validation" if one.result["recipe"]["validation"] else "test"


def _make_traces(number: int, cell: Cell, one: Outcome) -> list[dict[str, Any]]:
    """The first seed in full strength and with a name, the others faint."""
    split, traces = _choose_split(one), []
    name = f"{cell.label}: {split} error {write_error(one, ' %').replace('+-', '±')}"
    for run in one.runs:
        curves, first = run["curves"], run is one.runs[0]
        end = is_measured_once(curves, split)
        looks: dict[str, dict[str, Any]] = {"loss": {"line": {"dash": "dash", "width": 1.2}}}
        if end:
            looks["training"] = {"line": {"width": 0.7}, "mode": "lines", "yaxis": "y2"}
        looks[split] = {"marker": {"size": 9} if end else {}, "yaxis": "y2"}
        named = next((kind for kind in reversed(looks) if kind in curves), None)
        for kind, look in looks.items():
            if kind in curves:
                what = "training loss" if kind == "loss" else f"{kind} error, %:"
                hover = f"{plot.escape_label(cell.label)}<br>seed {run['seed']}, iteration %{{x}}<br>{what} %{{y:.4g}}"
                look |= {"hovertemplate": f"{hover}<extra></extra>", "opacity": 1 if first else 0.45}
                traces.append(plot.make_trace(number, name, *curves[kind], showlegend=first and kind == named, **look))
    return traces
