"""COCO's metric: twelve numbers from ten thresholds of overlap, three sizes and three limits of detections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resnets.data.annotations.pictures import Truth
from resnets.detection.average_precision import (
    Bools,
    Floats,
    Found,
    Ranking,
    measure_101_points,
    measure_overlaps,
)

OVERLAPS = np.linspace(0.5, 0.95, 10)
SIZES = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
LIMITS = (1, 10, 100)  # detections of a class in a picture
NAMES = {  # of the twelve numbers, with the size, the limit and the threshold (None: their mean)
    "AP": ("precision", "all", 100, None),
    "AP50": ("precision", "all", 100, 0),
    "AP75": ("precision", "all", 100, 5),
    "AP small": ("precision", "small", 100, None),
    "AP medium": ("precision", "medium", 100, None),
    "AP large": ("precision", "large", 100, None),
    "AR1": ("recall", "all", 1, None),
    "AR10": ("recall", "all", 10, None),
    "AR100": ("recall", "all", 100, None),
    "AR small": ("recall", "small", 100, None),
    "AR medium": ("recall", "medium", 100, None),
    "AR large": ("recall", "large", 100, None),
}


def rank_detections(
    truths: Sequence[Truth], found: Sequence[Found], label: int, size: str = "all", limit: int = LIMITS[-1]
) -> Ranking:
    """Rank the detections of a class at each threshold.

    In each picture, in order of score, a detection takes the free object that it overlaps most. Objects of another
    size and crowds need not be found: a detection that takes one does not count, nor does a free detection of another
    size.
    """
    scores, right, wrong, pictures = [], [], [], []
    positives = np.zeros(len(truths), np.int64)
    for i, (truth, one) in enumerate(zip(truths, found, strict=True)):
        objects, mine = truth.labels == label, np.flatnonzero(one.labels == label)
        if not len(mine) and not objects.any():
            continue
        mine = mine[np.argsort(-one.scores[mine], kind="stable")][: LIMITS[-1]]
        low, high = SIZES[size]
        ignored = truth.crowd[objects] | (truth.areas[objects] < low) | (truth.areas[objects] > high)
        taken, uncounted = _match(truth, objects, ignored, one.boxes[mine])
        sides = one.boxes[mine, 2:] - one.boxes[mine, :2]
        areas = sides[:, 0] * sides[:, 1]
        uncounted |= ~taken & ((areas < low) | (areas > high))
        part = slice(limit)
        scores.append(one.scores[mine][part])
        right.append((taken & ~uncounted)[:, part])
        wrong.append((~taken & ~uncounted)[:, part])
        pictures.append(np.full(len(mine[part]), i))
        positives[i] = (~ignored).sum()
    order = np.argsort(-np.concatenate(scores), kind="stable") if scores else np.empty(0, np.int64)
    empty = np.empty((len(OVERLAPS), 0), bool)
    return Ranking(
        np.concatenate([empty, *right], 1)[:, order],
        np.concatenate([empty, *wrong], 1)[:, order],
        np.concatenate([np.empty(0, np.int64), *pictures])[order],
        positives,
    )


def _match(truth: Truth, objects: Bools, ignored: Bools, boxes: Floats) -> tuple[Bools, Bools]:
    """At each threshold, whether each detection takes an object, and whether that one is ignored, (T, D)."""
    thresholds = np.minimum(OVERLAPS, 1 - 1e-10)
    taken, uncounted = (np.zeros((len(thresholds), len(boxes)), bool) for _ in range(2))
    if not len(boxes) or not objects.any():
        return taken, uncounted
    crowd = truth.crowd[objects]
    overlaps = measure_overlaps(boxes, truth.boxes[objects], crowd)
    free = np.ones((len(thresholds), len(crowd)), bool)
    for d in np.flatnonzero(overlaps.max(1) >= thresholds[0]):
        fits = (overlaps[d] >= thresholds[:, None]) & (free | crowd)
        counted = fits & ~ignored
        fits = np.where(counted.any(1, keepdims=True), counted, fits)  # an object that counts comes first
        for t in np.flatnonzero(fits.any(1)):
            values = np.where(fits[t], overlaps[d], -1.0)
            best = len(values) - 1 - int(values[::-1].argmax())  # of equal ones the last
            free[t, best] = False
            taken[t, d], uncounted[t, d] = True, ignored[best]
    return taken, uncounted


def measure(truths: Sequence[Truth], found: Sequence[Found], classes: int) -> dict[str, float | None]:
    """The twelve numbers, from 0 to 1; None where no object has that size."""
    precision: dict[tuple[str, int], list[Floats]] = {}
    recall: dict[tuple[str, int], list[Floats]] = {}
    for size, limit in {(size, limit) for _, size, limit, _ in NAMES.values()}:
        for label in range(classes):
            ranking = rank_detections(truths, found, label, size, limit)
            values = measure_101_points(ranking)
            if values is not None:
                precision.setdefault((size, limit), []).append(values)
                recall.setdefault((size, limit), []).append(ranking.right.sum(1) / ranking.positives.sum())
    numbers: dict[str, float | None] = {}
    for name, (kind, size, limit, threshold) in NAMES.items():
        values_of = (precision if kind == "precision" else recall).get((size, limit))
        if values_of is None:
            numbers[name] = None
        else:
            table = np.stack(values_of)
            numbers[name] = float(table.mean() if threshold is None else table[:, threshold].mean())
    return numbers
