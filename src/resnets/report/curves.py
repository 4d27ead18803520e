"""Training curves in the papers' style: training loss dashed, on a log axis to the left; error solid, to the right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.report.pictures import label, save
from resnets.runs import Run

_COLOURS = (
    "#4c4c4c",
    "#c0392b",
    "#1f6f9f",
    "#3a8f4d",
    "#a0661c",
    "#7a4fa3",
)  # told apart in print by the legend's order


def labels(runs: Sequence[Run]) -> list[str]:
    """The network, and of recipe, data and seed what differs; the folder where that does not tell the runs apart."""
    identities = [run.identity for run in runs]
    network, *others = zip(
        *((i.network.name, i.recipe.name, i.data, f"seed {i.seed}") for i in identities), strict=True
    )
    columns = [network, *(words for words in others if len(set(words)) > 1)]
    names = [", ".join(words) for words in zip(*columns, strict=True)]
    return names if len(set(names)) == len(names) else [run.path.name for run in runs]


def require_drawable(run: Run) -> None:
    """Refuse a run that cannot be read or has not logged yet."""
    _ = run.identity
    if "loss" not in run.curves:
        raise UserError(f"{run.path} has no metrics yet; let it train a little first.")


def draw(runs: Sequence[Run], path: Path) -> Path:
    """Several runs in one picture; the file's ending says the format."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("drawing curves needs the extra: pip install 'resnets[plot]'.") from None
    from matplotlib.ticker import FuncFormatter

    if path.suffix.lstrip(".") not in ("svg", "png", "pdf"):
        raise UserError(f"cannot draw to {path}: end its name in .svg, .png or .pdf.")
    for run in runs:
        require_drawable(run)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    loss_axis: Any = figure.add_subplot()
    error_axis: Any = loss_axis.twinx()
    for i, (run, name) in enumerate(zip(runs, labels(runs), strict=True)):
        colour, curves = _COLOURS[i % len(_COLOURS)], run.curves
        loss_axis.plot(*curves["loss"], "--", color=colour, linewidth=1)
        split = next((s for s in ("test", "validation") if s in curves), "training")
        steps, errors = curves[split]
        if len(steps) == 1:  # measured at the end alone: the training error shows the way there
            error_axis.plot(*curves["training"], color=colour, linewidth=0.6)
        text = f"{label(name)}: {split} error {errors[-1]:.2f} %"
        error_axis.plot(steps, errors, "o-" if len(steps) == 1 else "-", color=colour, label=text)
    loss_axis.set(xlabel="iterations", ylabel="training loss (dashed)", yscale="log")
    for axis in (loss_axis.yaxis.set_major_formatter, loss_axis.yaxis.set_minor_formatter):
        axis(FuncFormatter(lambda value, _: f"{value:g}"))
    error_axis.set(ylabel="error, % (solid; thin: of training)", ylim=(0, None))
    error_axis.grid(alpha=0.25)
    figure.legend(frameon=False, loc="outside lower center", ncols=1)
    return save(figure, path, dpi=150)
