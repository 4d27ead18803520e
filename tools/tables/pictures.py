"""Bars for README and docs, drawn twice: for light and for dark pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets.report.pictures import label, require_matplotlib, save
from tools.tables.themes import COLOURS

OTHERS, OURS = "#7d7d7d", "#d64545"  # seen on light and on dark


def draw_themes(path: Path, build: Callable[[], Any]) -> None:
    """Draw a figure to `path.svg` and `path-dark.svg`."""
    matplotlib = require_matplotlib(path.name)
    for ending, style in COLOURS.items():
        with matplotlib.rc_context(style):
            save(build(), path.with_name(f"{path.name}{ending}.svg"), transparent=True)


@dataclass(frozen=True)
class Bar:
    name: str
    length: float
    text: str  # behind the bar
    colour: str
    pale: bool = False


def draw_bars(axis: Any, title: str, bars: Sequence[Bar]) -> None:
    """Bars from the top to the bottom of an axis, each with its number behind it instead of a scale."""
    places = range(len(bars))
    for place, bar in zip(places, bars, strict=True):
        axis.barh(place, bar.length, color=bar.colour, height=0.72, alpha=0.45 if bar.pale else 1)
        where = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        axis.annotate(label(bar.text), (bar.length, place), size=8, **where)
    axis.set_yticks(places, [label(bar.name) for bar in bars], size=9)
    axis.set_ylim(len(bars) - 0.5, -0.5)
    longest = max(len(bar.text) for bar in bars)
    axis.set_xlim(0, (1 + longest / 45) * max(bar.length for bar in bars))  # room for the numbers
    axis.set_xticks([])
    axis.set_title(title, size=9, loc="left")
    axis.tick_params(axis="y", length=0)
    axis.spines[:].set_visible(False)
