"""Charts as data, which `chart.js` draws as SVG, and the element that holds one.

Lines differ in marks as well as colours, and each colour is visible on white and on black. The page's style sheet
colours the rest of a chart, so dark mode and print need no other charts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from resnets.report.page.html import Html, tag
from resnets.text import printable

COLOURS = ("#7d7d7d", "#d64545", "#2f83c5", "#2f9457", "#b1741a", "#9264c8")  # also in page.css
POINTS = 120  # of a line, at most
Values = Sequence[float | None]


def make_line(number: int, name: str, x: Sequence[int], y: Values, **look: Any) -> dict[str, Any]:
    """A line. Its number chooses the colour and the marks, and the lines of one number are one entry of the legend.

    `look` may have `right` (the right axis), `dash`, `thin`, `faint` and `big` (a large mark).
    """
    keep = _thin(len(x))
    return {
        "number": number,
        "name": printable(name),
        "x": [x[i] for i in keep],
        "y": [_round(y[i]) for i in keep],
        **{key: True for key, value in look.items() if value},
    }


def _thin(count: int) -> list[int]:
    """Which points of a long line to keep: every k-th and the last."""
    every = -(-count // POINTS)
    return sorted({*range(0, count, every or 1), *([count - 1] if count else [])})


def _round(value: float | None) -> float | None:
    """Four digits, which is more than a chart shows."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def build_chart(
    title: str, lines: list[dict[str, Any]], *, x: str, y: str, log: bool = False, right: str = "", caption: object = ""
) -> Html:
    """An element that `chart.js` draws in, and the data of the chart. `right` is the title of a second axis."""
    chart = {"title": printable(title), "x": x, "y": y, "log": log, "right": right, "lines": lines}
    return tag(
        "figure",
        tag("figcaption", title),
        tag("div", tag("noscript", "This chart is drawn by JavaScript."), class_="plot"),
        embed(chart),
        tag("p", caption, class_="note") if caption else "",
        class_="chart",
    )


def embed(data: Any, **attributes: object) -> Html:
    """Data for the page's scripts."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return tag("script", Html(text), type="application/json", **attributes)
