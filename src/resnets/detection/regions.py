"""The regions that the detector learns from, and the loss of its two sibling layers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from resnets.detection import boxes as box
from resnets.detection.proposals import Chosen, Objects, find_covered, sample

POSITIVE = 0.5  # overlap from which a region holds an object
DEVIATIONS = (0.1, 0.1, 0.2, 0.2)  # of the shifts, by which Fast R-CNN divides them


class Regions(NamedTuple):
    """The sampled regions of a picture."""

    boxes: Tensor  # (N, 4)
    labels: Tensor  # the class, or the number of classes for the background
    targets: Tensor  # shifts to the object; zeros for the background


@torch.no_grad()
def match_regions(candidates: Tensor, objects: Objects) -> tuple[Tensor, Tensor]:
    """1 for regions that overlap an object by 0.5, 0 for others, -1 where they lie on something that does not count;
    and the number of the object."""
    labels = torch.zeros(len(candidates), dtype=torch.long, device=candidates.device)
    places = torch.zeros_like(labels)
    labels[find_covered(candidates, objects)] = -1
    if len(objects.boxes) and len(candidates):
        best, places = box.measure_overlaps(candidates, objects.boxes).max(1)
        labels[best >= POSITIVE] = 1
    return labels, places


@torch.no_grad()
def choose_regions(proposals: Tensor, objects: Objects, classes: int, *, count: int, share: float, key: int) -> Regions:
    """Sample regions from the proposals and the objects themselves."""
    candidates = torch.cat([proposals, objects.boxes])
    labels, places = match_regions(candidates, objects)
    chosen: Chosen = sample(labels, count, share, key, "regions")
    found = candidates[chosen.all]
    names = torch.full((len(found),), classes, dtype=torch.long, device=found.device)
    targets = torch.zeros(len(found), 4, device=found.device)
    if many := len(chosen.positive):
        at = places[chosen.positive]
        names[:many] = objects.labels[at]
        targets[:many] = box.encode(objects.boxes[at], found[:many]) / found.new_tensor(DEVIATIONS)
    return Regions(found, names, targets)


def measure_region_loss(scores: Tensor, shifts: Tensor, labels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy over classes and background, and smooth L1 of the shifts of the true class; both over all regions.

    `scores` (N, classes + 1) have the background last, `shifts` are (N, classes, 4).
    """
    count, classes = max(len(labels), 1), shifts.shape[1]
    class_loss = functional.cross_entropy(scores, labels, reduction="sum") / count
    positive = (labels < classes).nonzero()[:, 0]
    mine = shifts[positive, labels[positive]]
    return class_loss, functional.smooth_l1_loss(mine, targets[positive], reduction="sum") / count
