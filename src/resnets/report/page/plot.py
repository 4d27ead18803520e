"""What all figures share: their look as Plotly's JSON, and the element that holds one.

Lines differ in marks as well as colours, and each colour is visible on white and on black. The page's style sheet
colours the rest of a figure, so dark mode and print need no other figures.
"""

from __future__ import annotations

import html
import json
from typing import Any

from resnets.report.page.html import Html, tag
from resnets.text import printable

COLOURS = ("#7d7d7d", "#d64545", "#2f83c5", "#2f9457", "#b1741a", "#9264c8")
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")  # one more than colours: pairs are rare
_ROW = 20  # pixels of a line of the legend


def escape_label(words: str) -> str:
    """Escape words for Plotly, which reads tags in them."""
    return html.escape(printable(words), quote=False)


def make_trace(number: int, name: str, x: list[Any], y: list[Any], **more: Any) -> dict[str, Any]:
    """A line with a few marks; its number chooses the colour and the marks."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "name": escape_label(name),
        "legendgroup": str(number),
        "line": {"color": COLOURS[number % len(COLOURS)], "width": 1.6, **more.pop("line", {})},
        "marker": {
            "color": COLOURS[number % len(COLOURS)], "symbol": MARKS[number % len(MARKS)], "size": 6, "maxdisplayed": 7,
            **more.pop("marker", {}),
        },
        **more,
    }  # fmt: skip


def make_layout(x: str, y: str, *, log: bool = False, names: int = 1, **more: Any) -> dict[str, Any]:
    axis = {"automargin": True, "zeroline": False, "exponentformat": "power"}
    return {
        "height": 300 + _ROW * names,
        "margin": {"l": 50, "r": 12, "t": 32, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 12, "color": "#666", "family": "system-ui, sans-serif"},
        "hovermode": "closest",
        "showlegend": True,  # also for a single line
        "xaxis": {**axis, "title": {"text": x, "standoff": 4}, "rangemode": "tozero"},
        "yaxis": {**axis, "title": {"text": y}, **({"type": "log", "nticks": 8} if log else {"rangemode": "tozero"})},
        "legend": {
            "orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom",
            "tracegroupgap": 0, "maxheight": 1,  # the height has a line for every name
        },
        **more,
    }  # fmt: skip


def _choose_ticks(data: list[dict[str, Any]], shape: dict[str, Any]) -> dict[str, Any]:
    """Ticks at 1, 2, 5 on a log axis of one to three decades, where Plotly would label every tick."""
    values = [y for line in data if "yaxis" not in line for y in line["y"] if y]
    spread = max(values) / min(values) if values and min(values) > 0 else 1
    if shape["yaxis"].get("type") != "log" or not 6 < spread < 1000:
        return shape
    return {**shape, "yaxis": {**shape["yaxis"], "dtick": "D2", "exponentformat": "none"}}


def build_figure(data: list[dict[str, Any]], shape: dict[str, Any], title: str, caption: object = "") -> Html:
    """An element that Plotly draws in, and the data of the figure."""
    drawn = {"data": data, "layout": _choose_ticks(data, shape)}
    spec = json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return tag(
        "figure",
        tag("div", tag("noscript", "The figure is drawn by JavaScript."), role="img", aria_label=title),
        tag("script", Html(spec), type="application/json"),
        tag("figcaption", tag("strong", title), " ", caption),
        class_="plot",
        style=f"--height: {shape['height']}px",
    )
