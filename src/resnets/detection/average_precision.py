"""Average precision: detections of a class ranked by score, the area under their precision, and its interval.

The metrics decide which detections are right (`voc_metric`, `coco_metric`); here precision follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

POINTS = np.arange(11) / 10  # of recall, in VOC until 2009
COCO_POINTS = np.linspace(0.0, 1.0, 101)
_EPS = np.spacing(1)
_DRAWS = 100, 1000  # of a bootstrap, at least and at most
_WORK = 2e8  # detections that a bootstrap may visit


@dataclass(frozen=True, eq=False)
class Found:
    """The detections of a picture."""

    boxes: Floats
    labels: Indices
    scores: Floats


@dataclass(frozen=True, eq=False)
class Ranking:
    """The detections of a class over all pictures, the best first, at one or more thresholds (T) of overlap."""

    right: Bools  # (T, D)
    wrong: Bools  # (T, D); a detection that is neither does not count
    pictures: Indices  # (D,): the picture of each
    positives: Indices  # of each picture: objects to be found

    def weigh(self, weights: Floats | None = None) -> tuple[Floats, Floats, float]:
        """The sums of right and of wrong detections up to each rank, and of objects; pictures may have weights."""
        if weights is None:
            weights = np.ones(len(self.positives))
        each = weights[self.pictures]
        sums = ((flags * each).cumsum(1) for flags in (self.right, self.wrong))
        return *sums, float(weights @ self.positives)  # type: ignore[return-value]


Area = Callable[[Ranking, "Floats | None"], "Floats | None"]  # for each threshold; None: nothing is to be found


def measure_11_points(ranking: Ranking, weights: Floats | None = None) -> Floats | None:
    """VOC 2007: the mean, over recalls 0, 0.1 ... 1, of the best precision at that recall or a higher one."""
    right, wrong, count = ranking.weigh(weights)
    if not count:
        return None
    recall, precision = right / count, right / np.maximum(right + wrong, _EPS)
    best = _keep_best_behind(precision)
    return np.stack([_look_up(best[t], recall[t], POINTS).mean() for t in range(len(right))])


def measure_area(ranking: Ranking, weights: Floats | None = None) -> Floats | None:
    """VOC since 2010: the area under the best precision at each recall or a higher one."""
    right, wrong, count = ranking.weigh(weights)
    if not count:
        return None
    best = _keep_best_behind(right / np.maximum(right + wrong, _EPS))
    steps = np.diff(right / count, prepend=0.0, axis=1)
    return (steps * best).sum(1)


def measure_101_points(ranking: Ranking, weights: Floats | None = None) -> Floats | None:
    """COCO: the mean over recalls 0, 0.01 ... 1."""
    right, wrong, count = ranking.weigh(weights)
    if not count:
        return None
    best = _keep_best_behind(right / (right + wrong + _EPS))
    recall = right / count
    return np.stack([_look_up(best[t], recall[t], COCO_POINTS).mean() for t in range(len(right))])


def _keep_best_behind(precision: Floats) -> Floats:
    return np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]


def _look_up(precision: Floats, recall: Floats, points: Floats) -> Floats:
    """The precision at the first rank that reaches each recall; 0 where none does."""
    places = np.searchsorted(recall, points, side="left")
    return np.append(precision, 0.0)[np.minimum(places, len(precision))]


def average(rankings: Sequence[Ranking], area: Area, weights: Floats | None = None) -> float | None:
    """The mean over classes that have objects, and over thresholds; None if no class has any."""
    found = [value.mean() for ranking in rankings if (value := area(ranking, weights)) is not None]
    return float(np.mean(found)) if found else None


def draw_weights(pictures: int, draws: int, seed: int = 0) -> npt.NDArray[Any]:
    """How often each picture is drawn with replacement, (draws, pictures)."""
    random = np.random.default_rng(seed)
    chosen = random.integers(pictures, size=(draws, pictures))
    return np.stack([np.bincount(row, minlength=pictures) for row in chosen]).astype(np.float64)


def find_interval(
    rankings: Sequence[Ranking], area: Area, against: Sequence[Ranking] | None = None
) -> tuple[float, float] | None:
    """The 95 % interval of the mean by a bootstrap over pictures; with `against`, of the difference of two means on the
    same pictures."""
    if not rankings or not any(ranking.positives.any() for ranking in rankings):
        return None
    size = sum(ranking.right.size for each in (rankings, against or ()) for ranking in each)
    draws = int(min(max(_WORK // max(size, 1), _DRAWS[0]), _DRAWS[1]))
    values = []
    for weights in draw_weights(len(rankings[0].positives), draws):
        value = average(rankings, area, weights)
        other = average(against, area, weights) if against is not None else 0.0
        if value is not None and other is not None:
            values.append(value - other)
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def measure_overlaps(boxes: Floats, others: Floats, crowd: Bools | None = None) -> Floats:
    """Intersection over union of each box with each of the others; of a crowd over the area of the box alone."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    both = np.maximum(high - low, 0).prod(2)
    areas, theirs = ((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes, others))
    union = areas[:, None] + theirs[None] - both
    if crowd is not None:
        union = np.where(crowd[None], areas[:, None], union)
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)
