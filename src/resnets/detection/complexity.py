"""Multiply-adds of a detector, from its spec."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from resnets.detector_spec import DetectorSpec, VggSpec
from resnets.unit_spec import UnitSpec


class Cost(NamedTuple):
    """Multiply-adds of a picture."""

    shared: tuple[int, ...]  # of each shared stage, the stem with the first
    proposals: int
    region: int  # of one region in the last stage


def count_multiply_adds(spec: DetectorSpec, height: int, width: int) -> Cost:
    """What the layers of a detector cost for a picture of this size as the network sees it."""
    stages, (rows, columns) = _count_stages(spec, height, width)
    places = rows * columns
    proposals = places * spec.rpn_width * (9 * spec.shared_channels + 5 * spec.anchors)
    region = _count_tail(spec) + spec.tail_channels * (5 * spec.num_classes + 1) * (2 if spec.context else 1)
    return Cost(tuple(stages), proposals, region)


def _count_stages(spec: DetectorSpec, height: int, width: int) -> tuple[list[int], tuple[int, int]]:
    backbone = spec.backbone
    size = height, width
    if isinstance(backbone, VggSpec):
        found, into = [], backbone.in_channels
        for stage in backbone.stages[:-1]:
            cost = 0
            for out in stage:
                cost += 9 * into * out * size[0] * size[1]
                into = out
            found.append(cost)
            size = size[0] // 2, size[1] // 2
        return [found[0] + found[1], *found[2:]], size
    kernel = 7 if backbone.stem == "imagenet" else 3
    if kernel == 7:
        size = _halve(size)
    stem = kernel**2 * backbone.in_channels * backbone.stem_channels * size[0] * size[1]
    size = _halve(size) if kernel == 7 else size
    stages = [0] * (len(backbone.blocks) - 1)
    for unit in backbone.units():
        if unit.stage < len(stages):
            cost, size = _count_unit(unit, size)
            stages[unit.stage] += cost
    stages[0] += stem
    return stages, size


def _halve(size: tuple[int, int]) -> tuple[int, int]:
    return math.ceil(size[0] / 2), math.ceil(size[1] / 2)


def _count_unit(unit: UnitSpec, size: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    cost = 0
    for conv in unit.convs:
        size = _halve(size) if conv.stride == 2 else size
        cost += conv.kernel**2 * conv.into * conv.out * size[0] * size[1]
    if unit.projects:
        cost += unit.into * unit.out * size[0] * size[1]
    return cost, size


def _count_tail(spec: DetectorSpec) -> int:
    backbone, size = spec.backbone, (spec.pool_size, spec.pool_size)
    if isinstance(backbone, VggSpec):
        widths = (spec.shared_channels, *backbone.stages[-1])
        return sum(9 * a * b for a, b in pairwise(widths)) * size[0] * size[1]
    total = 0
    for unit in backbone.units():
        if unit.stage == len(backbone.blocks) - 1:
            cost, size = _count_unit(unit, size)
            total += cost
    return total


def count_step(spec: DetectorSpec, height: int, width: int, regions: int, frozen: int) -> int:
    """A training step of one picture: forward everywhere, backward twice that where weights are trained."""
    cost = count_multiply_adds(spec, height, width)
    shared = sum(cost.shared[:frozen]) + 3 * sum(cost.shared[frozen:])
    return shared + 3 * cost.proposals + 3 * regions * cost.region


def count_test(spec: DetectorSpec, height: int, width: int, regions: int = 300) -> int:
    cost = count_multiply_adds(spec, height, width)
    return sum(cost.shared) + cost.proposals + regions * cost.region
