"""Training curves in the papers' style: training loss dashed, on a log axis to the left; error solid, to the right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.runs import Run

_COLOURS = (
    "#4c4c4c",
    "#c0392b",
    "#1f6f9f",
    "#3a8f4d",
    "#a0661c",
    "#7a4fa3",
)  # told apart in print by the legend's order


def series(run: Run) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values of the training loss, and of each error that was measured along the way."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for line in run.metrics():
        kind, value = line["kind"], line["loss" if line["kind"] == "train" else "error"]
        if kind != "epoch":
            steps, values = found.setdefault(kind, ([], []))
            steps.append(line["step"])
            values.append(value)
    return found


def labels(runs: Sequence[Run]) -> list[str]:
    """The shortest names that tell the runs apart: network, then recipe, data, seed, then the folder."""
    identities = [run.identity for run in runs]
    parts = [(i.spec.name, i.recipe.name, i.data, f"seed {i.seed}") for i in identities]
    for count in range(1, 5):
        names = [", ".join(p[:count]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [run.path.name for run in runs]


def draw(runs: Sequence[Run], path: Path) -> Path:
    """Several runs in one picture; the file's ending says the format."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("drawing curves needs the extra: pip install 'resnets[plot]'.") from None
    from matplotlib.figure import Figure

    if path.suffix.lstrip(".") not in ("svg", "png", "pdf"):
        raise UserError(f"cannot draw to {path}: end its name in .svg, .png or .pdf.")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    loss_axis: Any = figure.add_subplot()
    error_axis: Any = loss_axis.twinx()
    for i, (run, name) in enumerate(zip(runs, labels(runs), strict=True)):
        colour, curves = _COLOURS[i % len(_COLOURS)], series(run)
        if "train" not in curves:
            raise UserError(f"{run.path} has no metrics yet; let it train a little first.")
        loss_axis.plot(*curves["train"], "--", color=colour, linewidth=1)
        split = next((s for s in ("test", "validation") if s in curves), None)
        if split is None:
            error_axis.plot([], [], color=colour, label=name)
            continue
        steps, errors = curves[split]
        text = f"{name}: {split} error {errors[-1]:.2f} %"
        error_axis.plot(steps, errors, "o-" if len(steps) == 1 else "-", color=colour, label=text)
    loss_axis.set(xlabel="iterations", ylabel="training loss (dashed)", yscale="log")
    error_axis.set(ylabel="error, % (solid)", ylim=(0, None))
    error_axis.legend(frameon=False, loc="upper right")
    error_axis.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "resnets", "svg.fonttype": "none"}):  # the same bytes for the same runs
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path
