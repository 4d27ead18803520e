"""Repeats of a benchmark as a ratio with its spread.

A machine's speed drifts, so times of different minutes cannot be compared; the contestants of one round can. Ratios are
therefore taken round by round, and then their median and quartiles.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.tables.records import BENCH, DEPTH

Line = Mapping[str, Any]  # of results/bench/*.json: `contestants`, and where the numbers come from


@dataclass(frozen=True)
class Spread:
    """A median, and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def scale(self, by: float) -> Spread:
        return Spread(by * self.median, by * self.low, by * self.high)

    def __str__(self) -> str:
        digits = 2 if self.median < 10 else 1
        median, low, high = (f"{value:.{digits}f}" for value in (self.median, self.low, self.high))
        return median if low == high else f"{median} ({low} to {high})"


def read_lines(results: Path, section: str) -> dict[str, Line]:
    """The lines of a section by name; empty where it was not measured."""
    path = results / "bench" / f"{section}.json"
    record = DEPTH if section == "depth" else BENCH
    return record.read(path)["lines"] if path.exists() else {}


def read_values(line: Line, contestant: str, key: str = "seconds") -> list[float] | None:
    """A contestant's repeats, one for each round; None where it did not take part or the system has no such value."""
    found = line["contestants"].get(contestant, {}).get(key)
    return found if found and None not in found else None


def compute_ratio(line: Line, base: str, contestant: str, key: str = "seconds") -> Spread | None:
    """The base's repeats over the contestant's, round by round: above 1 the contestant needs less."""
    over, under = read_values(line, base, key), read_values(line, contestant, key)
    if over is None or under is None:
        return None
    return Spread.of([a / b for a, b in zip(over, under, strict=True)])


def read_reason(line: Line, contestant: str) -> str:
    """Why a contestant has no numbers."""
    return line["contestants"].get(contestant, {}).get("reason", "")
