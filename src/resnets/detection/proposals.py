"""The region proposal network: which anchors hold an object, and where its box is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.counter_rng import draws
from resnets.detection import boxes as box
from resnets.detection.anchors import make_shapes, place_anchors
from resnets.detection.fixed_bn import Conv, run_convs
from resnets.detection.operators import suppress
from resnets.detector_spec import DetectorSpec
from resnets.engine.native.kernels import Kernels

HIGH, LOW = 0.7, 0.3  # overlap from which an anchor is positive, and below which it is negative
COVERED = 0.5  # overlap with an object that does not count, from which a box is no negative
NMS = 0.7
LARGEST = {True: (12000, 2000), False: (6000, 300)}  # boxes before and after NMS, in training and in testing
LEAST_SIDE = 1.0  # pixels of a proposal
SMOOTH = 1 / 9  # where the loss of a box turns from a square into a line


class Objects(NamedTuple):
    """The objects of a picture as the network sees it."""

    boxes: Tensor  # (N, 4)
    labels: Tensor
    uncounted: Tensor  # boxes of objects that are difficult: neither positive nor negative
    crowds: Tensor  # boxes of crowds: what lies inside is no negative


class Chosen(NamedTuple):
    """A sample of anchors or regions: the numbers of those that hold an object, and of those that do not."""

    positive: Tensor
    negative: Tensor

    @property
    def all(self) -> Tensor:
        return torch.cat([self.positive, self.negative])


class ProposalNetwork(nn.Module):
    """3x3 convolution, ReLU, then for each anchor a score and four shifts, each by a 1x1 convolution."""

    shapes: Tensor

    def __init__(self, spec: DetectorSpec) -> None:
        super().__init__()
        self.stride = spec.stride
        self.conv = nn.Conv2d(spec.shared_channels, spec.rpn_width, 3, padding=1)
        self.score = nn.Conv2d(spec.rpn_width, spec.anchors, 1)
        self.shift = nn.Conv2d(spec.rpn_width, 4 * spec.anchors, 1)
        self.register_buffer("shapes", make_shapes(spec.anchor_sizes, spec.anchor_ratios), persistent=False)

    def forward(self, x: Tensor, kernels: Kernels | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (N,), shifts (N, 4) and anchors (N, 4) of one picture's map."""
        hidden = run_convs([Conv(self.conv, relu=True)], x, kernels)
        scores = self.score(hidden).permute(0, 2, 3, 1).flatten()
        shifts = self.shift(hidden).permute(0, 2, 3, 1).reshape(-1, 4)
        return scores, shifts, place_anchors(self.shapes, x.shape[2], x.shape[3], self.stride)


@torch.no_grad()
def find_proposals(
    scores: Tensor, shifts: Tensor, anchors: Tensor, size: tuple[int, int], largest: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """The best boxes of a picture of this height and width after NMS, and their scores."""
    before, after = largest
    order = scores.sort(descending=True, stable=True).indices[:before]
    found = box.clip(box.decode(shifts[order], anchors[order]), size)
    sides = found[:, 2:] - found[:, :2]
    kept = (sides >= LEAST_SIDE).all(1)
    found, ranked = found[kept], scores[order][kept]
    chosen = suppress(found, ranked, NMS, after)
    return found[chosen], ranked[chosen]


# --- training -----------------------------------------------------------------------------------


def find_covered(boxes: Tensor, objects: Objects) -> Tensor:
    """Whether each box lies on an object that does not count, or inside a crowd."""
    covered = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    if len(objects.uncounted):
        covered |= box.measure_overlaps(boxes, objects.uncounted).amax(1) >= COVERED
    if len(objects.crowds):
        covered |= box.measure_cover(boxes, objects.crowds).amax(1) >= COVERED
    return covered


@torch.no_grad()
def match_anchors(anchors: Tensor, objects: Objects, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """1 for anchors that hold an object, 0 for those that hold none, -1 for others; and the number of the object.

    An anchor holds an object from an overlap of 0.7, or if no anchor overlaps that object more; it holds none if it
    overlaps all by less than 0.3. Anchors that cross the edge of the picture are left out.
    """
    height, width = size
    inside = (anchors[:, :2] >= 0).all(1) & (anchors[:, 2] <= width) & (anchors[:, 3] <= height)
    labels = torch.full((len(anchors),), -1, dtype=torch.long, device=anchors.device)
    places = torch.zeros_like(labels)
    index = inside.nonzero()[:, 0]
    some = torch.zeros(len(index), dtype=torch.long, device=anchors.device)
    holds = torch.zeros(len(index), dtype=torch.bool, device=anchors.device)
    if len(objects.boxes) and len(index):
        overlaps = box.measure_overlaps(anchors[index], objects.boxes)
        best, nearest = overlaps.max(1)
        most = overlaps.amax(0)
        holds = (best >= HIGH) | ((overlaps == most) & (most > 0)).any(1)
        # An anchor that is the best of an object belongs to the object that it overlaps most, as in Faster R-CNN.
        places[index] = nearest
        some = torch.where(best >= LOW, -1, some)
    some = torch.where(find_covered(anchors[index], objects), -1, some)
    labels[index] = torch.where(holds, 1, some)
    return labels, places


def sample(labels: Tensor, count: int, share: float, key: int, purpose: str) -> Chosen:
    """At most `count` of the boxes labelled 1 and 0, at most a share of them positive. The draws follow from `key`."""
    order = torch.from_numpy(draws(purpose, key, 0, np.arange(len(labels))).view(np.int64)).to(labels.device)
    positive = _choose(labels == 1, order, int(count * share))
    return Chosen(positive, _choose(labels == 0, order, count - len(positive)))


def _choose(candidates: Tensor, order: Tensor, count: int) -> Tensor:
    """`count` of the candidates, or all, in the order of their numbers."""
    index = candidates.nonzero()[:, 0]
    if len(index) <= count:
        return index
    return index[order[index].argsort(stable=True)[:count]].sort().values


def measure_proposal_loss(scores: Tensor, shifts: Tensor, chosen: Chosen, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the sampled anchors, and smooth L1 of the shifts of the positive ones; both over all samples."""
    both, count = chosen.all, max(len(chosen.all), 1)
    wanted = torch.zeros(len(both), device=scores.device)
    wanted[: len(chosen.positive)] = 1
    score_loss = functional.binary_cross_entropy_with_logits(scores[both], wanted, reduction="sum") / count
    box_loss = functional.smooth_l1_loss(shifts[chosen.positive], targets, reduction="sum", beta=SMOOTH) / count
    return score_loss, box_loss
