"""RoI pooling, RoI align and non-maximum suppression in PyTorch: the definitions, and what runs without a compiler.

A region has five numbers: the picture in the batch, then left, top, right and bottom in pixels of the picture.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from resnets.detection.boxes import measure_overlaps


class Bins(NamedTuple):
    """How a region of a map is divided."""

    size: int  # size x size bins
    scale: float  # pixels of the map for each pixel of the picture: 1 / stride
    samples: int = 2  # RoI align: samples x samples points in each bin; 0: as many as it has pixels
    aligned: bool = True  # RoI align: the value of a pixel stands at its centre


def _round(x: Tensor) -> Tensor:
    """Halves are rounded away from zero, as in C."""
    return x.sign() * (x.abs() + 0.5).floor()


def _find_bins(low: Tensor, high: Tensor, size: int, scale: float, length: int) -> tuple[Tensor, Tensor]:
    """The first and last (not included) row or column of each bin, (N, size)."""
    start, end = _round(low * scale), _round(high * scale)
    cells = (end - start + 1).clamp(min=1) / size  # in float, as Caffe and ONNX Runtime do
    bins = torch.arange(size, device=low.device, dtype=low.dtype)
    first, last = (bins * cells[:, None]).floor(), ((bins + 1) * cells[:, None]).ceil()
    return (first + start[:, None]).clamp(0, length).long(), (last + start[:, None]).clamp(0, length).long()


def pool_regions(x: Tensor, regions: Tensor, bins: Bins) -> Tensor:
    """The largest value in each bin; 0 in a bin without pixels. Of equal values the first gets the gradient."""
    (_, channels, height, width), (size, scale, *_) = x.shape, bins
    regions = regions.float()
    top, bottom = _find_bins(regions[:, 2], regions[:, 4], size, scale, height)
    left, right = _find_bins(regions[:, 1], regions[:, 3], size, scale, width)
    flat = x.flatten(2)[regions[:, 0].long()]  # (N, channels, pixels)
    shape = (len(regions), channels, size * size)
    place = torch.zeros(shape, dtype=torch.long, device=x.device)
    empty = ((bottom <= top)[:, :, None] | (right <= left)[:, None, :]).flatten(1)[:, None].expand(shape)
    with torch.no_grad():
        best = torch.full(shape, -torch.inf, dtype=x.dtype, device=x.device)
        rows, columns = (int((b - a).max()) if len(regions) else 0 for a, b in ((top, bottom), (left, right)))
        for i in range(rows):
            for j in range(columns):
                y, z = top + i, left + j
                inside = ((y < bottom)[:, :, None] & (z < right)[:, None, :]).flatten(1)
                at = y.clamp(max=height - 1)[:, :, None] * width + z.clamp(max=width - 1)[:, None, :]
                index = at.flatten(1)[:, None].expand(shape)
                value = flat.gather(2, index)
                better = inside[:, None] & ((value > best) | value.isnan() | ((i == 0) & (j == 0)))
                best, place = torch.where(better, value, best), torch.where(better, index, place)
    out = flat.gather(2, place).masked_fill(empty, 0)
    return out.view(len(regions), channels, size, size)


def align_regions(x: Tensor, regions: Tensor, bins: Bins) -> Tensor:
    """The mean of the values at some points between pixels in each bin."""
    if not len(regions):
        return x[:0, :, :1, :1].expand(-1, -1, bins.size, bins.size)  # with a gradient
    return torch.cat([_align(x, region, bins) for region in regions])


def _align(x: Tensor, region: Tensor, bins: Bins) -> Tensor:
    picture, (left, top, right, bottom) = x[int(region[0])], region[1:].tolist()
    _, height, width = picture.shape
    down, rows = _find_points(top, bottom, bins, height)
    across, columns = _find_points(left, right, bins, width)
    # A matrix of weights for each direction; their product is bilinear.
    found = (down.to(x) @ picture) @ across.to(x).T
    return found[None] / max(rows * columns, 1)


def _find_points(low: float, high: float, bins: Bins, length: int) -> tuple[Tensor, int]:
    """Weights (size, length) that sum the values at the points of each bin, and the number of points in a bin."""
    low, whole = low * bins.scale, (high - low) * bins.scale
    low, whole = (low - 0.5, whole) if bins.aligned else (low, max(whole, 1.0))
    size, count = bins.size, bins.samples or max(0, math.ceil(whole / bins.size))
    weights = torch.zeros(size, length, dtype=torch.float64)
    for bin in range(size):
        for i in range(count):
            place = low + bin * whole / size + (i + 0.5) * whole / size / count
            if not -1 <= place <= length:
                continue
            place = min(max(place, 0.0), length - 1.0)
            first = min(int(place), length - 1)
            weights[bin, first] += 1 - (place - first)
            weights[bin, min(first + 1, length - 1)] += place - first
    return weights, count


def suppress(boxes: Tensor, threshold: float, limit: int) -> Tensor:
    """Numbers of the boxes, in order of falling score, that overlap no better one by more than the threshold."""
    kept: list[int] = []
    left = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    for i in range(len(boxes)):
        if len(kept) >= limit:
            break
        if left[i]:
            kept.append(i)
            left &= measure_overlaps(boxes[i : i + 1], boxes)[0] <= threshold
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)
