"""How good a detector is on pictures with known objects: mean average precision by VOC's or COCO's metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from resnets.data.annotations.pictures import Truth
from resnets.detect_options import METRICS
from resnets.detection import coco_metric, voc_metric
from resnets.detection.average_precision import (
    Area,
    Found,
    Ranking,
    average,
    find_interval,
    measure_11_points,
    measure_101_points,
    measure_area,
)
from resnets.errors import UserError, one_of

_AREAS: dict[str, Area] = {
    "voc2007": measure_11_points,
    "voc2012": measure_area,
    "coco": measure_101_points,
}


@dataclass(frozen=True)
class ClassPrecision:
    """The average precision of one class in per cent; None for a class without objects."""

    name: str
    objects: int
    precision: float | None


@dataclass(frozen=True, eq=False)
class DetectionScore:
    """Mean average precision in per cent, by one metric."""

    metric: str
    pictures: int
    classes: tuple[str, ...]
    rankings: tuple[Ranking, ...] = field(repr=False)
    numbers: Mapping[str, float | None] = field(default_factory=dict)  # COCO's twelve, in per cent
    context: Mapping[str, Any] = field(default_factory=dict, repr=False)
    models: tuple[Any, ...] = field(default=(), repr=False)  # that were evaluated

    @property
    def precision(self) -> float | None:
        """Mean average precision; None if there is nothing to be found."""
        return _to_percent(average(self.rankings, _AREAS[self.metric]))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval, by a bootstrap over pictures."""
        found = find_interval(self.rankings, _AREAS[self.metric])
        return None if found is None else (100 * found[0], 100 * found[1])

    @property
    def per_class(self) -> tuple[ClassPrecision, ...]:
        area = _AREAS[self.metric]
        found = ((ranking, area(ranking, None)) for ranking in self.rankings)
        rows = [(int(ranking.positives.sum()), None if v is None else 100 * float(v.mean())) for ranking, v in found]
        return tuple(ClassPrecision(name, *row) for name, row in zip(self.classes, rows, strict=True))

    def with_context(self, context: Mapping[str, Any], models: Sequence[Any] = ()) -> DetectionScore:
        return replace(self, context=context, models=tuple(models))

    def to_dict(self) -> dict[str, Any]:
        interval = self.interval
        return {
            "metric": self.metric,
            "images": self.pictures,
            "map": self.precision,
            "interval": None if interval is None else list(interval),
            "classes": [{"name": c.name, "objects": c.objects, "ap": c.precision} for c in self.per_class],
            **({"coco": dict(self.numbers)} if self.numbers else {}),
        }

    def __str__(self) -> str:
        value, interval = self.precision, self.interval
        if value is None or interval is None:
            return f"no mAP: {self.pictures} pictures have no object to be found"
        return f"mAP {value:.2f} % (95 % interval {interval[0]:.2f} to {interval[1]:.2f}, {self.pictures} pictures)"


def _to_percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def choose_metric(data: str, paths: Sequence[str]) -> str:
    """The metric that belongs to data: COCO's for its form, VOC 2007's for pictures of that year, else VOC 2012's."""
    if data.startswith("coco:"):
        return "coco"
    return "voc2007" if data.startswith("voc:") and any("VOC2007" in path for path in paths[:1]) else "voc2012"


def score_detections(
    truths: Sequence[Truth], found: Sequence[Found], classes: Sequence[str], metric: str = "voc2007"
) -> DetectionScore:
    """Score the detections of pictures, one `Found` for each `Truth`."""
    if metric not in METRICS:
        raise one_of("metric", metric, METRICS)
    if len(truths) != len(found):
        raise UserError(f"there are objects of {len(truths)} pictures and detections of {len(found)}.")
    rank = coco_metric.rank_detections if metric == "coco" else voc_metric.rank_detections
    rankings = tuple(rank(truths, found, label) for label in range(len(classes)))
    numbers: dict[str, float | None] = {}
    if metric == "coco":
        numbers = {name: _to_percent(v) for name, v in coco_metric.measure(truths, found, len(classes)).items()}
    return DetectionScore(metric, len(truths), tuple(classes), rankings, numbers)


@dataclass(frozen=True)
class Difference:
    """By how much one detector is better than another on the same pictures, in points of mAP."""

    difference: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.interval
        word = "may be chance" if low <= 0 <= high else "is more than chance"
        return f"difference {self.difference:+.2f} points (95 % interval {low:+.2f} to {high:+.2f}): it {word}"


def compare_scores(score: DetectionScore, other: DetectionScore) -> Difference:
    """The difference of two detectors, with its interval by a bootstrap over the pictures that both have seen."""
    if (score.metric, score.pictures, score.classes) != (other.metric, other.pictures, other.classes):
        raise UserError("only scores by one metric on the same pictures and classes can be compared.")
    area = _AREAS[score.metric]
    interval = find_interval(score.rankings, area, other.rankings)
    if score.precision is None or other.precision is None or interval is None:
        raise UserError("there is no object to be found in these pictures.")
    return Difference(score.precision - other.precision, (100 * interval[0], 100 * interval[1]))
