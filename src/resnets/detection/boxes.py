"""Boxes as tensors (N, 4): left, top, right, bottom in pixels; a picture reaches from 0 to its width and height."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_GROWTH = math.log(1000 / 16)  # of a side, by which a network may enlarge a box: exp would overflow


def measure_areas(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def intersect(boxes: Tensor, others: Tensor) -> Tensor:
    """The area that each box shares with each of the others."""
    low = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return (high - low).clamp(min=0).prod(2)


def measure_overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of each box with each of the others; 0 where both have no area."""
    both = intersect(boxes, others)
    union = measure_areas(boxes)[:, None] + measure_areas(others)[None] - both
    return torch.where(both > 0, both / union.clamp(min=torch.finfo(both.dtype).tiny), torch.zeros_like(both))


def measure_cover(boxes: Tensor, others: Tensor) -> Tensor:
    """The share of each box that lies inside each of the others."""
    areas = measure_areas(boxes)[:, None]
    return torch.where(areas > 0, intersect(boxes, others) / areas.clamp(min=torch.finfo(boxes.dtype).tiny), 0.0)


def clip(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut boxes to a picture of this height and width; (..., 4)."""
    height, width = size
    most = boxes.new_tensor([width, height, width, height])
    return torch.minimum(boxes.clamp(min=0), most)


def mirror(boxes: Tensor, width: float) -> Tensor:
    """The boxes in the mirror image of a picture; (..., 4)."""
    left, top, right, bottom = boxes.unbind(-1)
    return torch.stack([width - right, top, width - left, bottom], -1)


def _to_centres(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return boxes[..., 0] + width / 2, boxes[..., 1] + height / 2, width, height


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """R-CNN's t = ((x - x_a) / w_a, (y - y_a) / h_a, log(w / w_a), log(h / h_a)) of boxes with area."""
    x, y, width, height = _to_centres(boxes)
    x_a, y_a, width_a, height_a = _to_centres(anchors)
    return torch.stack(
        [(x - x_a) / width_a, (y - y_a) / height_a, (width / width_a).log(), (height / height_a).log()], -1
    )


def decode(shifts: Tensor, anchors: Tensor) -> Tensor:
    """The boxes that `encode` made shifts of. Sides grow by at most 1000 / 16."""
    x_a, y_a, width_a, height_a = _to_centres(anchors)
    x, y = x_a + shifts[..., 0] * width_a, y_a + shifts[..., 1] * height_a
    width = shifts[..., 2].clamp(max=LARGEST_GROWTH).exp() * width_a
    height = shifts[..., 3].clamp(max=LARGEST_GROWTH).exp() * height_a
    return torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)
