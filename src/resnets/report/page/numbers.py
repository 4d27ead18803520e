"""Our numbers as a reader sees them: the error with its interval and its seeds, which a click leads to its origin."""

from __future__ import annotations

import math
import statistics

from resnets.experiments.comparison import write_error
from resnets.experiments.outcomes import Outcome
from resnets.report.page import provenance
from resnets.report.page.html import Html, join, tag


def write_plus_minus(words: str) -> str:
    return words.replace("+-", "±")


def count_seeds(one: Outcome) -> str:
    return f"{len(one.runs)} seed{'s' * (len(one.runs) != 1)}"


def find_interval(one: Outcome) -> tuple[float, float] | None:
    """Of several seeds the median, plus and minus their deviation; of one seed the 95 % interval of its test."""
    errors = [value for value in one.values("error") if math.isfinite(value)]
    if len(errors) > 1:
        middle, spread = statistics.median(errors), statistics.stdev(errors)
        return middle - spread, middle + spread
    return one.intervals[0] if one.intervals else None


def build_number(one: Outcome) -> Html:
    """The error, whose click opens the box of its origin, and its seeds."""
    words = write_plus_minus(write_error(one))
    button = provenance.build_button(provenance.name_box(one.budget, one.row), words)
    return join([button, " ", tag("small", count_seeds(one))])
