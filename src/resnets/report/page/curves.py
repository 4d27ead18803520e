"""The papers' figures from our results: training loss dashed, on a log axis to the left; error solid, right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resnets.experiments.comparison import write_error
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Cell
from resnets.papers.tables import EXPERIMENTS
from resnets.report.curves import is_measured_once
from resnets.report.page import provenance
from resnets.report.page.chart import build_chart, make_line
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs
from resnets.report.page.numbers import write_plus_minus
from resnets.report.page.tables import build_fold

PANELS: dict[str, dict[str, tuple[int, ...]]] = {  # experiment -> title -> which of its cells
    "figure1": {"": (0, 1)},
    "figure3": {"(a)": (0, 1), "(b)": (0, 2), "(c)": (0, 3), "(d)": (0, 4)},
    "figure6": {"left": (0, 1), "right": (2, 3)},
    "plain-cifar": {"plain nets": (0, 1, 2, 3, 4), "residual nets": (5, 6, 7, 8, 9, 10)},
    "gate-bias": {"": tuple(range(11))},
}


def build_section(inputs: Inputs) -> Html:
    """Every figure at the budget that shows most of it, the others in folds; without any, the command that makes it."""
    return join(_build_experiment(name, inputs) for name in PANELS)


def _build_experiment(name: str, inputs: Inputs) -> Html:
    experiment = EXPERIMENTS[name]
    parts = [tag("h3", f"{experiment.where}: {experiment.title}")]
    for number, budget in enumerate(inputs.rank_budgets(experiment)):
        panels = [
            build_panel(f"{experiment.where} {title}".strip(), [experiment.cells[i] for i in which],
                        inputs.found[budget], budget)
            for title, which in PANELS[name].items()
        ]  # fmt: skip
        drawn = tag("div", *panels, class_="figures")
        parts.append(build_fold(f"The same at budget {budget}", drawn) if number else drawn)
    if len(parts) == 1:
        command = tag("code", f"resnets reproduce {name}")
        parts.append(build_fold("not run", tag("p", command, " runs it.", class_="missing")))
    return tag("section", *parts, id=f"curves-{name}")


def build_panel(title: str, cells: Sequence[Cell], found: Outcomes, budget: str, caption: str = "") -> Html:
    there = [cell for cell in cells if found.find(cell)]
    absent = [cell.label for cell in cells if cell not in there]
    if not there:
        return tag("p", f"{title}, not run at budget {budget}: {'; '.join(absent)}.", class_="missing")
    outcomes = [found[cell.row.name] for cell in there if cell.row]
    lines = [
        line for i, (cell, one) in enumerate(zip(there, outcomes, strict=True)) for line in _make_lines(i, cell, one)
    ]
    seeds = " or ".join(map(str, sorted({len(one.runs) for one in outcomes})))
    notes = [caption] * bool(caption) + [f"Ours: budget {budget}, seeds: {seeds}."]
    if any(is_measured_once(run["curves"], choose_split(one)) for one in outcomes for run in one.runs):
        notes.append("The large mark is the error at the end, the thin line the error on training batches.")
    notes += [f"Not run: {'; '.join(absent)}."] * bool(absent)
    origins = [join([" ", provenance.build_button(provenance.name_box(budget, one.row), one.row)]) for one in outcomes]
    return build_chart(
        title, lines, x="iterations", y="training loss (dashed)", log=True, right="error, % (solid)",
        caption=join([" ".join(notes), " From:", *origins]),
    )  # fmt: skip


def choose_split(one: Outcome) -> str:
    return "validation" if one.result["recipe"]["validation"] else "test"


def _make_lines(number: int, cell: Cell, one: Outcome) -> list[dict[str, Any]]:
    """The first seed in full strength, the others faint."""
    split, lines = choose_split(one), []
    name = f"{cell.label}: {split} error {write_plus_minus(write_error(one, ' %'))}"
    for run in one.runs:
        curves, faint = run["curves"], run is not one.runs[0]
        end = is_measured_once(curves, split)
        looks: dict[str, dict[str, bool]] = {"loss": {"dash": True}}
        if end:
            looks["training"] = {"right": True, "thin": True}
        looks[split] = {"right": True, "big": end}
        for kind, look in looks.items():
            if kind in curves:
                x, y = curves[kind]
                lines.append(make_line(number, name, x, y, faint=faint, **look))
    return lines
