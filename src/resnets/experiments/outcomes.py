"""The results of rows, read from `results/<budget>/<row>.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from resnets import records
from resnets.errors import UserError
from resnets.papers.rows import Cell, Row
from resnets.unit_spec import ORDERS

METRICS = {  # of a run; one that diverged has infinite error and loss
    "error": "test error, %",
    "top5": "top-5 error, %",
    "early": "training loss, the median of the first quarter",
    "final": "training loss, the mean of the last tenth",
    "truncation": "share of y_l below zero, over all units",
}


@dataclass(frozen=True)
class Outcome:
    """The runs of one row at one budget. Rows on ImageNet have several tests; `test` chooses one."""

    row: str
    budget: str
    scaled: tuple[str, ...]  # what differs from the papers' protocol
    limit: float  # above this error a run counts as failed
    result: dict[str, Any]  # the whole file
    test: str = ""  # whose errors `values` gives

    @classmethod
    def from_dict(cls, result: dict[str, Any]) -> Outcome:
        return cls(result["row"], result["budget"], tuple(result["scaled"]), result["fails_above"], result)

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of its tests; on CIFAR there is one without a name."""
        return tuple(self.result.get("tests", ("",)))

    def by(self, test: str) -> Outcome:
        return replace(self, test=test)

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.result["runs"]

    @property
    def diverged(self) -> int:
        """Runs that ended in a loss that is not finite."""
        return sum("failed" in run["result"] for run in self.runs)

    @property
    def fails(self) -> bool:
        errors = self.values("error")
        return bool(errors) and statistics.median(errors) > self.limit

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """The 95 % interval over test images of a row with one run, of its error and, on ImageNet, of top-5; none of
        several runs, whose spread says more, and of results that were written without it."""
        ended = [run for run in self.runs if "failed" not in run["result"]]
        if len(ended) != 1 or self.test not in self.tests:
            return ()
        score = _score(self, ended[0])
        found = (each["interval"] for each in (score, score.get("top5", {}) if self.test else {}) if "interval" in each)
        return tuple((low, high) for low, high in found)

    def values(self, metric: str) -> tuple[float, ...]:
        """A number for each run that has one; none where the row was not tested by `test`."""
        if self.test not in self.tests:
            return ()
        found = (_READERS[metric](self, run) for run in self.runs)
        return tuple(value for value in found if value is not None)


def _error(one: Outcome, run: dict[str, Any]) -> float | None:
    return math.inf if "failed" in run["result"] else _score(one, run)["error"]


def _score(one: Outcome, run: dict[str, Any]) -> dict[str, Any]:
    """The score that counts, of a run that has not diverged."""
    if one.test:
        return run["tests"][one.test]
    return run["result"]["validation" if one.result["recipe"]["validation"] else "test"]


def _top5(one: Outcome, run: dict[str, Any]) -> float | None:
    return run["tests"][one.test]["top5"]["error"] if one.test and "tests" in run else None


def _early(one: Outcome, run: dict[str, Any]) -> float | None:
    return _loss(run, 0, 0.25, statistics.median)


def _final(one: Outcome, run: dict[str, Any]) -> float | None:
    return math.inf if "failed" in run["result"] else _loss(run, 0.9, 1, statistics.fmean)


def _loss(run: dict[str, Any], low: float, high: float, mean: Any) -> float | None:
    """Over the logged losses between two shares of the training; infinite if the run ended before."""
    steps, losses = run["curves"].get("loss", ([], []))
    chosen = [loss for step, loss in zip(steps, losses, strict=True) if low < step / run["steps"] <= high]
    if chosen:
        return mean(chosen)
    return math.inf if "failed" in run["result"] else None


def _truncation(one: Outcome, run: dict[str, Any]) -> float | None:
    """Only of units with a ReLU after the addition, which makes values of y_l below zero zero."""
    order = one.result["network"].get("order", "original")
    if "signal" not in run or "relu" not in ORDERS[order].after:
        return None
    return statistics.fmean(run["signal"]["zeros"][1:])  # the first map is the stem's


_READERS = {"error": _error, "top5": _top5, "early": _early, "final": _final, "truncation": _truncation}


def read_row(path: Path) -> Outcome:
    """Read the results of the row that the file is named after."""
    try:
        one = Outcome.from_dict(records.ROW.read(path))
        if one.row != path.stem:
            raise UserError(f"{path}: row must be {path.stem!r}, as the file is called, not {one.row!r}.")
    except UserError as error:
        raise UserError(f"{error} Move the file away, or repair it, to run the row again.") from None
    return one


class Spread(NamedTuple):
    """The standard deviation between seeds, pooled over rows, and the degrees of freedom it rests on."""

    std: float
    freedom: int

    @property
    def quantile(self) -> float:
        return student(self.freedom)


def student(freedom: int) -> float:
    """Student's t for a two-sided 5 %; beyond ten degrees of freedom, that of ten, which is larger."""
    return _STUDENT[min(freedom, len(_STUDENT)) - 1]


_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Outcomes(dict[str, Outcome]):
    """All rows that have results at one budget, by name."""

    @classmethod
    def read(cls, folder: Path, leave_out: Callable[[UserError], None] | None = None) -> Outcomes:
        """Read the files of a budget. A file that cannot be read raises `UserError`, or is given to `leave_out`."""
        found = cls()
        for path in sorted(folder.glob("*.json")):
            try:
                found[path.stem] = read_row(path)
            except UserError as error:
                if leave_out is None:
                    raise
                leave_out(error)
        return found

    def find(self, cell: Cell) -> Outcome | None:
        """The row of a cell, by the test of the cell; None where it is another system's, or has not been run."""
        one = self.get(cell.row.name) if cell.row else None
        return one.by(cell.test) if one and cell.test in one.tests else None

    def by(self, test: str) -> Outcomes:
        """The rows by one test."""
        return Outcomes({name: one.by(test) for name, one in self.items()})

    def spread(self, metric: str) -> Spread | None:
        """Over rows with several seeds that do not fail: those that fail stay at chance, where the spread is small."""
        squares, freedom = 0.0, 0
        for one in self.values():
            values = one.values(metric)
            if len(values) > 1 and all(map(math.isfinite, values)) and not one.fails:
                squares += statistics.variance(values) * (len(values) - 1)
                freedom += len(values) - 1
        return Spread(math.sqrt(squares / freedom), freedom) if freedom else None

    def compare(self, row: Row, than: Row, metric: str) -> tuple[int, float]:
        """The sign of a difference of means where it is beyond noise, and the difference."""
        high, low = self[row.name].values(metric), self[than.name].values(metric)
        if not high or not low:
            return 0, math.nan
        difference = statistics.fmean(high) - statistics.fmean(low)
        return self.sign(difference, 1 / len(high) + 1 / len(low), metric), difference

    def sign(self, difference: float, share: float, metric: str) -> int:
        """0 unless a difference is larger than noise of `share` times the variance between seeds explains."""
        noise = self.spread(metric)
        if noise is None or math.isnan(difference):
            return 0
        beyond = abs(difference) > noise.quantile * noise.std * math.sqrt(share)
        return int(math.copysign(1, difference)) if beyond else 0
