"""Draw a confusion matrix: the share of the images of each class that the network takes for each class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from resnets.errors import UserError
from resnets.report.pictures import label, new_figure, require_matplotlib, save

if TYPE_CHECKING:
    from resnets.evaluation.score import Score

ENDINGS = (".png", ".svg", ".pdf")
_NAMED = 40  # classes whose names fit beside the picture
_WRITTEN = 20  # classes whose numbers fit into the cells


def require_picture(path: Path) -> None:
    """Refuse what cannot be drawn; call it before a long measurement."""
    if path.suffix not in ENDINGS:
        raise UserError(f"a confusion matrix is drawn to {', '.join(ENDINGS)}, not to {path}.")
    require_matplotlib("a confusion matrix")


def draw_confusion(score: Score, path: Path) -> Path:
    """Rows are the true classes, columns what the network names first; each row adds up to 100 %."""
    require_picture(path)
    if score.confusion is None:
        raise UserError("this score has no confusion matrix; resnets.evaluate makes one.")
    counts = score.confusion
    images = counts.sum(1, keepdims=True)
    shares = 100 * counts / np.maximum(images, 1)
    size = len(counts)
    side = min(4 + 0.35 * min(size, _NAMED), 18.0)
    figure = new_figure("a confusion matrix", (side + 1, side))
    axes = figure.add_subplot()
    drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    figure.colorbar(drawn, ax=axes, label="% of the images of the class", shrink=0.8)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    axes.set_title(f"error {score.error:.2f} % of {score.images:,} images", loc="left")
    if size <= _NAMED:
        names = [label(row.name) for row in score.per_class]
        axes.set_xticks(range(size), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(size), names)
    if size <= _WRITTEN:
        for (i, j), share in np.ndenumerate(shares):
            if counts[i, j]:
                axes.text(j, i, f"{share:.0f}" if share >= 1 else "<1", ha="center", va="center", fontsize=8,
                          color="white" if share > 55 else "black")  # fmt: skip
    return save(figure, path)
