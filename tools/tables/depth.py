"""The cost of depth as a picture: results/bench/depth.svg from depth.json beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.report.pictures import label, new_figure, save
from tools.tables.ratios import Spread, read_lines, read_values

GIB = 2**30
_COLOURS = {"fast": "#c0392b", "lean": "#1f6f9f", "min": "#3a8f4d"}
_MARKS = {"basic": "o-", "bottleneck": "s--"}


def draw(results: Path) -> Path | None:
    """Times of a step, of building and of the first step, and peak memory; None where depth was not measured."""
    section = read_lines(results, "depth")
    if not section:
        return None
    figure = new_figure("the cost of depth", (9, 6.4))
    axes: Any = figure.subplots(2, 2).flat
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        for (block, mode), points in series(section, key).items():
            axis.plot(
                *points,
                _MARKS.get(block, "^:"),
                color=_COLOURS.get(mode),
                label=label(f"{mode}, {block}"),
                markersize=4,
            )
        axis.set(title=title, xlabel="layers", xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.25)
    handles = {text: line for line, text in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, frameon=False, loc="outside lower center", ncols=3)
    return save(figure, results / "bench" / "depth.svg")


PANELS = {
    "seconds": "time of a step, the first = 1",
    "peak": "peak memory, GiB",
    "build": "time to build, the first = 1",
    "first": "time of the first step, the first = 1",
}


def series(section: dict[str, Any], key: str) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    """Layers and medians for each kind of unit and each mode. Times are relative to the very first; memory is in GiB.

    Nets of the original order stand only in the table: they are another curve.
    """
    found: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    unit: float | None = GIB if key == "peak" else None
    for line in section.values():
        for mode in line["contestants"] if line["order"] == "full_preact" else ():
            if measured := read_values(line, mode, key):
                median = Spread.of(measured).median
                unit = unit or median
                at, height = found.setdefault((line["unit"], mode), ([], []))
                at.append(line["layers"])
                height.append(median / unit)
    return found
