"""Training curves in the papers' style: training loss dashed, on a log axis to the left; error solid, to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.report.compare import name_runs
from resnets.report.pictures import label, new_figure, save
from resnets.runs import Run

_COLOURS = (  # in print the order in the legend distinguishes them
    "#4c4c4c", "#c0392b", "#1f6f9f", "#3a8f4d", "#a0661c", "#7a4fa3",
)  # fmt: skip
Points = tuple[Sequence[int], Sequence[float]]


@dataclass(frozen=True)
class Curve:
    """One run in a figure: its loss, and its error on `split`."""

    points: dict[str, Points]  # as `Run.curves` has them
    split: str
    colour: str
    name: str | None = None  # in the legend
    strength: float = 1.0


def build_figure(curves: Sequence[Curve], size: tuple[float, float] = (7, 4.5)) -> Any:
    """A matplotlib figure of several curves."""
    figure = new_figure("curves", size)
    from matplotlib.ticker import FuncFormatter, LogLocator

    losses: Any = figure.add_subplot()
    errors: Any = losses.twinx()
    for curve in curves:
        look = {"color": curve.colour, "alpha": curve.strength}
        if "loss" in curve.points:
            losses.plot(*curve.points["loss"], "--", linewidth=1.2, **look)
        steps, values = curve.points.get(curve.split, ([], []))
        once = is_measured_once(curve.points, curve.split)
        if once and "training" in curve.points:  # the training error shows the course
            errors.plot(*curve.points["training"], linewidth=0.6, **look)
        errors.plot(steps, values, "o-" if once else "-", label=curve.name, **look)
    losses.set(xlabel="iterations", ylabel="training loss (dashed)", yscale="log")
    losses.yaxis.set_minor_locator(LogLocator(subs=(1.5, 2, 3, 5, 7)))
    for set_formatter in (losses.yaxis.set_major_formatter, losses.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    errors.set(ylabel="error, % (solid; thin: of training)", ylim=(0, None))
    losses.grid(alpha=0.25)
    figure.legend(frameon=False, loc="outside lower center", ncols=1)
    return figure


def is_measured_once(points: dict[str, Points], split: str) -> bool:
    """Whether an error was measured only at the end."""
    return len(points.get(split, ([],))[0]) == 1


def require_drawable(run: Run) -> None:
    """Refuse a run that cannot be read or has not logged yet."""
    _ = run.identity
    if "loss" not in run.curves:
        raise UserError(f"{run.path} has no metrics yet; let it train a little first.")


def draw(runs: Sequence[Run], path: Path) -> Path:
    """Several runs in one picture; the ending of the file's name gives the format."""
    if path.suffix.lstrip(".") not in ("svg", "png", "pdf"):
        raise UserError(f"cannot draw to {path}: end its name in .svg, .png or .pdf.")
    for run in runs:
        require_drawable(run)
    drawn = []
    for i, (run, name) in enumerate(zip(runs, name_runs(runs, [run.identity for run in runs]), strict=True)):
        points = run.curves
        split = next((split for split in ("test", "validation", "training") if split in points), "")
        text = f"{label(name)}: {split} error {points[split][1][-1]:.2f} %" if split else label(name)
        drawn.append(Curve(dict(points), split, _COLOURS[i % len(_COLOURS)], text))
    return save(build_figure(drawn), path, dpi=150)
