"""Detect objects in a picture, with v1's improvements as switches.

v1: refinement (pool again from the regressed box, join both sets, NMS, vote), several scales (features of two
neighbouring scales, merged by maxout), ensembles (proposals of all detectors, their answers averaged). Mirror images
are averaged in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from resnets.data.resampling import resize_whole
from resnets.detection import boxes as box
from resnets.detection.average_precision import Found
from resnets.detection.detector import TESTED, FasterRCNN
from resnets.detection.operators import suppress
from resnets.detection.proposals import LARGEST, NMS, find_proposals
from resnets.engine.threads import hold
from resnets.errors import UserError

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)

VOTES = 0.5  # overlap from which a box votes for the place of a detection


@dataclass(frozen=True)
class Testing:
    """How pictures are tested."""

    __test__ = False  # no test of pytest's

    sides: tuple[int, ...] = ()  # shorter sides of the picture; () is the detector's own
    mirror: bool = False
    refine: bool = False
    nms: float = 0.3
    score: float = 0.05  # least score of a detection
    most: int = 100  # detections in a picture
    proposals: int = LARGEST[False][1]

    def describe(self, detectors: int = 1) -> str:
        """In words, for results."""
        words = [f"shorter sides {', '.join(map(str, self.sides))}" if self.sides else "one scale"]
        words += ["mirror images"] * self.mirror + ["refined boxes"] * self.refine
        words += [f"{detectors} detectors"] * (detectors > 1)
        return ", ".join(words)


class Look:
    """A picture or its mirror image as one detector sees it: a shared map for each scale."""

    def __init__(self, detector: FasterRCNN, pixels: Pixels, sides: tuple[int, ...], mirrored: bool) -> None:
        self.detector, self.mirrored = detector, mirrored
        self.size = pixels.shape[0], pixels.shape[1]
        self.maps: list[Tensor] = []
        self.scales: list[Tensor] = []
        self.seen: list[tuple[int, int]] = []
        self.sides: tuple[int, ...] = tuple(sorted(sides)) or (detector.scaling.side,)
        device = next(detector.parameters()).device
        for side in self.sides:
            width, height = detector.scaling.find_size((self.size[1], self.size[0]), side if sides else None)
            small = torch.from_numpy(np.ascontiguousarray(resize_whole(pixels, (width, height))))
            image = detector.scaling.normalize(small.to(device).permute(2, 0, 1))
            self.maps.append(detector.look(image.flip(2) if mirrored else image))
            across, down = width / self.size[1], height / self.size[0]
            self.scales.append(torch.tensor([across, down, across, down], device=device))
            self.seen.append((height, width))

    @classmethod
    def at_image(cls, detector: FasterRCNN, image: Tensor) -> Look:
        """A normalised picture (3, H, W) as it is."""
        look = cls.__new__(cls)
        look.detector, look.mirrored, look.size = detector, False, (image.shape[1], image.shape[2])
        look.maps, look.scales = [detector.look(image)], [torch.ones(4, device=image.device)]
        look.seen, look.sides = [look.size], (detector.scaling.side,)
        return look

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        """Proposals in pixels of the picture, from the scale that is nearest to the detector's own, as in v1."""
        own = self.detector.scaling.side
        k = min(range(len(self.sides)), key=lambda i: abs(self.sides[i] - own))
        before = LARGEST[False][0]
        found, scores = find_proposals(*self.detector.propose(self.maps[k]), self.seen[k], (before, count))
        found = found / self.scales[k]
        return (box.mirror(found, self.size[1]) if self.mirrored else found), scores

    def judge(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (N, classes + 1) and boxes (N, classes, 4) of regions, all in pixels of the picture."""
        mine = box.mirror(regions, self.size[1]) if self.mirrored else regions
        scores, shifts = self.detector.judge(self._describe(mine))
        boxes = self.detector.find_boxes(shifts, mine, self.size)
        return scores.softmax(1), box.mirror(boxes, self.size[1]) if self.mirrored else boxes

    def _describe(self, regions: Tensor) -> Tensor:
        if len(self.maps) == 1:
            return self.detector.describe_in_context(self.maps[0], regions * self.scales[0], self.seen[0])
        if not self.detector.spec.context:
            return self._merge(regions)
        whole = regions.new_tensor([[0.0, 0.0, self.size[1], self.size[0]]])
        features = self._merge(torch.cat([regions, whole]))
        return torch.cat([features[:-1], features[-1:].expand(len(regions), -1)], 1)

    def _merge(self, regions: Tensor) -> Tensor:
        """Pool each region from two neighbouring scales and take the larger value of each feature (maxout) before the
        last stage. At these scales the region is nearest to as many places of the map as are pooled: 14x14 in v1,
        which are 224x224 pixels."""
        roots = box.measure_areas(regions).clamp(min=1).sqrt()
        sides = torch.stack([roots * scale[:2].prod().sqrt() for scale in self.scales], 1)
        usual = self.detector.spec.stride * self.detector.spec.pool_size
        lower = (sides <= usual).sum(1).sub(1).clamp(0, len(self.scales) - 2)
        found = regions.new_zeros(len(regions), self.detector.spec.tail_channels)
        for k in range(len(self.scales) - 1):
            index = (lower == k).nonzero()[:, 0]
            for i in range(0, len(index), TESTED):
                some = index[i : i + TESTED]
                pooled = [self.detector.pool(self.maps[s], regions[some] * self.scales[s]) for s in (k, k + 1)]
                found[some] = self.detector.backbone.run_tail(torch.maximum(*pooled))
        return found


@torch.no_grad()
def detect(detectors: Sequence[FasterRCNN], pixels: Pixels, testing: Testing = Testing()) -> Found:  # noqa: B008
    """The objects in a picture (height, width, 3), the best first, in pixels of the picture."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise UserError(f"a picture must be uint8 (height, width, 3), not {pixels.dtype} {pixels.shape}.")
    flips = (False, True) if testing.mirror else (False,)
    looks = [Look(detector, pixels, testing.sides, flip) for detector in detectors for flip in flips]
    return detect_in(looks, testing)


@torch.no_grad()
def detect_in(looks: Sequence[Look], testing: Testing) -> Found:
    """The objects that all looks at a picture see together."""
    hold()
    regions = _join_proposals(looks, testing.proposals)
    probabilities, boxes = judge_together(looks, regions)
    if testing.refine and len(regions):
        again = _choose_boxes(probabilities, boxes)
        more = judge_together(looks, again)
        probabilities, boxes = torch.cat([probabilities, more[0]]), torch.cat([boxes, more[1]])
    return select(probabilities, boxes, testing)


def _join_proposals(looks: Sequence[Look], count: int) -> Tensor:
    """The proposals of all looks; of several the best after NMS of all of them."""
    found = [look.propose(count) for look in looks]
    if len(found) == 1:
        return found[0][0]
    every, scores = (torch.cat(parts) for parts in zip(*found, strict=True))
    return every[suppress(every, scores, NMS, count)]


def judge_together(looks: Sequence[Look], regions: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of what all looks say about regions."""
    answers = [look.judge(regions) for look in looks]
    probabilities, boxes = (torch.stack(parts).mean(0) for parts in zip(*answers, strict=True))
    return probabilities, boxes


def _choose_boxes(probabilities: Tensor, boxes: Tensor) -> Tensor:
    """The box of the likeliest class of each region."""
    labels = probabilities[:, :-1].argmax(1)
    chosen = boxes[torch.arange(len(boxes), device=boxes.device), labels]
    empty = (chosen[:, 2:] - chosen[:, :2] < 1).any(1, keepdim=True)  # nothing to pool from
    grown = torch.cat([chosen[:, :2], torch.maximum(chosen[:, 2:], chosen[:, :2] + 1)], 1)
    return torch.where(empty, grown, chosen)


def select(probabilities: Tensor, boxes: Tensor, testing: Testing) -> Found:
    """NMS within each class; with refinement, each detection is the mean of the boxes that vote for it."""
    found_boxes, found_labels, found_scores = [], [], []
    for label in range(boxes.shape[1]):
        scores = probabilities[:, label]
        likely = scores >= testing.score
        mine, ranked = boxes[likely, label], scores[likely]
        kept = suppress(mine, ranked, testing.nms)
        chosen = vote(mine[kept], mine, ranked) if testing.refine else mine[kept]
        found_boxes.append(chosen)
        found_scores.append(ranked[kept])
        found_labels.append(torch.full((len(kept),), label, dtype=torch.long, device=boxes.device))
    every, labels, scores = torch.cat(found_boxes), torch.cat(found_labels), torch.cat(found_scores)
    best = scores.sort(descending=True, stable=True).indices[: testing.most]
    return Found(every[best].double().cpu().numpy(), labels[best].cpu().numpy(), scores[best].double().cpu().numpy())


def vote(chosen: Tensor, candidates: Tensor, scores: Tensor) -> Tensor:
    """Box voting: the mean, weighted by score, of the candidates that overlap a chosen box by 0.5 or more."""
    weights = (box.measure_overlaps(chosen, candidates) >= VOTES) * scores
    total = weights.sum(1, keepdim=True)
    return torch.where(total > 0, weights @ candidates / total.clamp(min=1e-12), chosen)
