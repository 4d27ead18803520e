"""Do two columns put things in the same order?"""

from __future__ import annotations

import math
from collections.abc import Sequence


def ranks(values: Sequence[float]) -> list[float]:
    """Places from 1 up; equal values share the mean of theirs."""
    return [(sum(v < value for v in values) + sum(v <= value for v in values) + 1) / 2 for value in values]


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The rank correlation, from -1 to 1; None for fewer than three pairs, or where a column is all equal."""
    if len(one) < 3:
        return None
    a, b = ranks(one), ranks(other)
    middle = (len(one) + 1) / 2
    together = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    size = math.sqrt(sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b))
    return together / size if size else None
