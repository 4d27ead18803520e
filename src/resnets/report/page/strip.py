"""Small charts in the cells of tables: a dot for a number, a bar for its interval, on an axis that a column shares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from resnets.report.page.html import Html, tag


@dataclass(frozen=True)
class Axis:
    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float]) -> Axis:
        """From a round number below the values to one above them."""
        found = [value for value in values if math.isfinite(value)]
        low, high = min(found, default=0.0), max(found, default=1.0)
        step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50) if step * 6 >= high - low or step == 50)
        return cls(max(0.0, math.floor(low / step) * step), math.ceil((high + step / 10) / step) * step)

    def place(self, value: float) -> float:
        """Per cent from the left; a number beyond the axis stands at its end."""
        return round(100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low))), 2)

    def build_ends(self) -> Html:
        """The numbers at both ends, for the head of the column."""
        return tag(
            "span", tag("span", f"{self.low:g}"), tag("span", f"{self.high:g} %"), class_="ends", aria_hidden="true"
        )


def build_strip(axis: Axis, value: float, interval: tuple[float, float] | None = None, kind: str = "") -> Html:
    """The number itself stands beside the strip, so the strip is hidden from screen readers. What fails has a cross at
    the end of the axis."""
    marks = []
    if interval is not None:
        left, right = map(axis.place, interval)
        marks.append(tag("i", class_="bar", style=f"left:{left}%;width:{round(right - left, 2)}%"))
    fails = not math.isfinite(value)
    marks.append(tag("i", "✗" if fails else "", class_="cross" if fails else "dot", style=f"left:{axis.place(value)}%"))
    return tag("span", *marks, class_=f"strip {kind}".strip(), aria_hidden="true")
