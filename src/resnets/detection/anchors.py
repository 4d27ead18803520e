"""Anchors: boxes of a few sizes and shapes at every place of a map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_SIZES = (8, 16, 32, 64, 128, 256, 512)  # that `choose_sizes` chooses from
_MIDDLE = (5, 95)  # per cent: larger and smaller boxes are left to their neighbours


def make_shapes(sizes: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """The anchors of one place around 0, (A, 4): for each ratio of height to width each size, the root of an area."""
    rows = []
    for ratio in ratios:
        for size in sizes:
            width, height = size / ratio**0.5, size * ratio**0.5
            rows.append((-width / 2, -height / 2, width / 2, height / 2))
    return torch.tensor(rows, dtype=torch.float64).float()


def place_anchors(shapes: Tensor, height: int, width: int, stride: int) -> Tensor:
    """Anchors (height x width x A, 4) around the centres of the pixels of a map, in pixels of the picture."""
    y, x = ((torch.arange(n, device=shapes.device, dtype=torch.float32) + 0.5) * stride for n in (height, width))
    y, x = torch.meshgrid(y, x, indexing="ij")
    return (torch.stack([x, y, x, y], -1)[:, :, None] + shapes).view(-1, 4)


def choose_sizes(sides: npt.NDArray[np.float64]) -> tuple[int, ...]:
    """Sizes for boxes whose areas have these roots, in pixels as the network sees them: powers of two between which
    nine of ten boxes lie."""
    if not len(sides):
        return (128, 256, 512)
    low, high = np.percentile(sides, _MIDDLE)
    nearest = [int(np.abs(np.log(np.array(_SIZES) / max(side, 1.0))).argmin()) for side in (low, high)]
    return _SIZES[nearest[0] : nearest[1] + 1]
