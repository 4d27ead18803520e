"""Two ways of training, compared seed by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from resnets.experiments.outcomes import student


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The mean of ours less theirs, and how far from 0 it may lie by chance, to 95 %."""
    found = [a - b for a, b in zip(ours, theirs, strict=True)]
    return statistics.fmean(found), student(len(found) - 1) * statistics.stdev(found) / math.sqrt(len(found))
