"""Draw how signals travel through networks: a panel for each quantity, units along x, a line for each network.

The input is plain data, as `Propagation.to_dict` gives it, with a `label`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from resnets.report.pictures import label, new_figure, save

_COLOURS = ("#4c4c4c", "#c0392b", "#1f6f9f", "#3a8f4d", "#c98a1b", "#7a4fa3")
_STYLES = ("-", "-.", ":")  # when all colours are used, the next style begins; dashes are predictions


class Panel(NamedTuple):
    title: str
    part: str  # of the data: maps or units
    name: str
    log: bool = False
    spans: bool = False  # relative to the last map of its size, so that each size has its own line
    predicted: str = ""  # drawn dashed


PANELS = (
    Panel("signal: rms of x_l", "maps", "rms", log=True),
    Panel("growth: rms of x_l+1 / rms of x_l", "units", "growth"),
    Panel("share of F: |F(x_l)| / |x_l+1|", "units", "share"),
    Panel("equation (4) misses x_L by, relative", "maps", "missed", log=True, spans=True),
    Panel("gradient: |dE/dx_l|", "maps", "gradient", log=True),
    Panel("cosine of dE/dx_l with dE/dx_L", "maps", "cosine", spans=True),
    Panel("product of λ to x_L (dashed: predicted)", "maps", "product", True, True, "predicted_product"),
    Panel("share that the ReLU of f cuts", "units", "truncated"),
)


def read_line(data: dict[str, Any], panel: Panel, name: str) -> tuple[list[int], list[float]]:
    """l and the values; a gap (nan) where there is no value, and where it is 0 on a log axis."""
    at: list[int] = []
    values: list[float] = []
    ends = {last for _, last in data["spans"]} if panel.spans else set()
    for i, value in enumerate(data[panel.part][name]):
        drawn = value is not None and (value > 0 or not panel.log)
        at.append(i)
        values.append(value if drawn else math.nan)
        if i in ends:
            at.append(i)
            values.append(math.nan)
    return at, values


def draw(analyses: Sequence[dict[str, Any]], paths: Sequence[Path]) -> None:
    """All analyses in one picture, written to each path; a path's ending says the format."""
    figure = new_figure("the analysis", (12, 6.2))
    axes: Any = figure.subplots(2, 4)
    for axis, panel in zip(axes.flat, PANELS, strict=True):
        for i, data in enumerate(analyses):
            colour = _COLOURS[i % len(_COLOURS)]
            style = _STYLES[i // len(_COLOURS) % len(_STYLES)]
            axis.plot(
                *read_line(data, panel, panel.name), style, color=colour, linewidth=1.3, label=label(data["label"])
            )
            if panel.predicted:
                axis.plot(*read_line(data, panel, panel.predicted), "--", color=colour, linewidth=0.8)
        _finish(axis, panel)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    columns = max(1, min(len(labels), 150 // (max(map(len, labels)) + 10)))  # as many as fit, at most 150 characters
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=columns)
    for path in paths:
        save(figure, path, dpi=110)


def _finish(axis: Any, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator, NullFormatter

    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel("unit l", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.25)
    values = [v for drawn in axis.get_lines() for v in drawn.get_ydata() if math.isfinite(v)]
    if not values:
        axis.text(0.5, 0.5, "no values", ha="center", transform=axis.transAxes, fontsize=9)
        axis.set(xticks=[], yticks=[], xlabel="")
    elif not panel.log:
        axis.set_ylim(min(0.0, *values), 1.05 * max(*values, 0.1))
    else:
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(NullFormatter())
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        if high - low <= 2:  # from one power of ten to another, so that there are ticks to read
            flat = low == high
            axis.set_ylim(10.0 ** (low - flat), 10.0 ** (high + flat))
