"""Trainings by v1's own recipe with nothing scaled, beside v1's Figure 6: a table, and a picture for light and dark.

They are the files of results/cifar whose recipe is `cifar-paper` unchanged. Without one, nothing is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets import records
from resnets.chain import parse_network
from resnets.papers.numbers import Reported, find_paper_error
from resnets.recipe import LATER, RECIPES, iterations
from resnets.report.pictures import label, new_figure, require_matplotlib, save
from resnets.runs import Summary
from tools.tables.errors import write_runs
from tools.tables.themes import COLOURS, write_picture

NAME = "cifar-paper"
_PAPER = RECIPES[NAME]
_STEPS = iterations(_PAPER.length, 50_000, _PAPER.batch)
_LINES = ("#d64545", "#3b8fd0", "#4fa35e")  # seen on light and on dark
_HIGHEST = 25.0  # per cent: where the curves differ; v1's figure ends at 20


@dataclass(frozen=True)
class PaperRun:
    """A network that was trained as in v1, with what v1 reports for it."""

    network: str
    data: str
    path: Path
    runs: Sequence[dict[str, Any]]
    reported: Reported | None

    @property
    def errors(self) -> Summary:
        return Summary(tuple(run["result"]["test"]["error"] for run in self.runs))

    def write_difference(self) -> str:
        if self.reported is None:
            return "-"
        return f"{self.errors.median - self.reported.error:+.2f} points"


def find_paper_runs(results: Path) -> list[PaperRun]:
    found = []
    for path in sorted((results / "cifar").glob("*.json")):
        for result in records.check_trainings(records.load(path), path):
            if {**LATER, **result["recipe"]} == dataclasses.asdict(_PAPER):
                name, data = parse_network(result["network"]).name, result["data"]["name"]
                reported = find_paper_error(name, data)
                same = reported if reported and reported.network == name else None
                found.append(PaperRun(name, data, path, result["runs"], same))
    return found


def write_paper_runs(results: Path) -> str:
    if not (found := find_paper_runs(results)):
        return ""
    lines = ["| network | data | test error, ours | the paper's | difference |", "|---|---|---|---|---|"]
    for one in found:
        theirs = f"{one.reported.error:.2f} % ({one.reported.where})" if one.reported else "-"
        ours = f"[{write_runs([run['result']['test'] for run in one.runs])}](../results/cifar/{one.path.name})"
        lines.append(f"| {one.network} | {one.data} | {ours} | {theirs} | {one.write_difference()} |")
    drawn = [one.network for one in found if _has_curve(one)]
    if not drawn:
        return "\n".join(lines)
    text = f"{', '.join(drawn)} with {NAME}: training error (dashed) and test error (solid) by iterations"
    return "\n".join([*lines, "", write_picture(f"../results/{NAME}", text), "", f"{text}; crosses: the paper's."])


def _has_curve(one: PaperRun) -> bool:
    return any("test" in run.get("curves", {}) for run in one.runs)


def draw(results: Path) -> None:
    """Draw the curves into the folder of results, if there is one: training dashed, test solid, v1's end as a cross."""
    found = [one for one in find_paper_runs(results) if _has_curve(one)]
    if not found:
        return
    matplotlib = require_matplotlib("the curves of v1's recipe")
    for ending, style in COLOURS.items():
        with matplotlib.rc_context(style):
            save(_build_figure(found), results / f"{NAME}{ending}.svg", transparent=True)


def _build_figure(found: Sequence[PaperRun]) -> Any:
    figure = new_figure("curves", (7, 4.2))
    axis: Any = figure.add_subplot()
    for i, one in enumerate(found):
        colour = _LINES[i % len(_LINES)]
        for number, run in enumerate(one.runs):
            curves, look = run.get("curves", {}), {"color": colour, "alpha": 1.0 if number == 0 else 0.45}
            if "training" in curves:
                axis.plot(*curves["training"], "--", linewidth=0.9, **look)
            if "test" in curves:
                name = label(f"{one.network}: test error {one.errors.median:.2f} %") if number == 0 else None
                axis.plot(*curves["test"], linewidth=1.3, label=name, **look)
        if one.reported is not None:
            paper = f"{one.network} in {one.reported.where}: {one.reported.error:.2f} %"
            axis.plot([_STEPS], [one.reported.error], "x", color=colour, markersize=8, clip_on=False, label=paper)
    axis.set(xlabel="iterations", ylabel="error, % (dashed: training)", ylim=(0, _HIGHEST), xlim=(0, 1.02 * _STEPS))
    axis.grid(alpha=0.25)
    figure.legend(frameon=False, loc="outside lower center", ncols=1)
    return figure
