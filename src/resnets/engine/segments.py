"""Where to cut the units of a network into segments that are run again one by one in the backward pass."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class Part(NamedTuple):
    """What a unit costs in training, in bytes."""

    kept: int  # between its forward and its backward pass
    passing: int  # at most, while it is run, above what is kept by itself and all before it
    output: int  # the map that it leaves


def peak(units: Sequence[Part]) -> int:
    """The most that units hold at once, run forward and backward one after the other."""
    held = most = 0
    for unit in units:
        held += unit.kept
        most = max(most, held + unit.passing)
    return most


def cut(units: Sequence[Part], places: int = 1) -> tuple[tuple[int, ...], int]:
    """The lengths of the segments that hold least, and how much that is.

    A segment holds the inputs of the segments up to it, each of which takes `places` of its size, and its own units
    while it is run again. There are about as many segments as units in each, and more units in one where the maps are
    small.
    """
    least, most = max(unit.kept + unit.passing for unit in units), peak(units)
    limit = least + bisect_left(range(least, most), True, key=lambda limit: _within(units, limit, places) is not None)
    return tuple(_within(units, limit, places) or [len(units)]), limit


def _within(units: Sequence[Part], limit: int, places: int) -> list[int] | None:
    """Segments as long as the limit allows, or None where not even one unit fits."""
    lengths = [0]
    inputs = inside = 0
    for i, unit in enumerate(units):
        if lengths[-1] and inputs + inside + unit.kept + unit.passing > limit:
            lengths.append(0)
            inputs, inside = inputs + places * units[i - 1].output, 0
        if inputs + inside + unit.kept + unit.passing > limit:
            return None
        lengths[-1] += 1
        inside += unit.kept
    return lengths
