"""Mean scores over views of whole images: mirror images, and images that are moved by some pixels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from resnets.errors import UserError

Scores = Callable[[Tensor], Tensor]


def average_mirrored(scores: Scores, x: Tensor) -> Tensor:
    """The mean of the scores of images and of their mirror images."""
    return (scores(x) + scores(x.flip(-1).contiguous(memory_format=torch.channels_last))) / 2


def average_shifted(scores: Scores, x: Tensor, pixels: int) -> Tensor:
    """The mean of the scores of images moved down and right, and of images moved up and left."""
    return (scores(shift(x, pixels)) + scores(shift(x, -pixels))) / 2


def shift(x: Tensor, pixels: int) -> Tensor:
    """Images moved down and right, or with negative `pixels` up and left; what comes in is the rim's reflection."""
    height, width = x.shape[2:]
    first = abs(pixels) - pixels
    padded = functional.pad(x, (abs(pixels),) * 4, mode="reflect")
    moved = padded[:, :, first : first + height, first : first + width]
    return moved.contiguous(memory_format=torch.channels_last)


def require_room(pixels: int, side: int | None) -> None:
    """Refuse to move what has no pixels, or images by their whole side: their reflection has no more than that."""
    if pixels and side is None:
        raise UserError("shift moves images by pixels, and these data are no images; leave it at 0.")
    if side is not None and pixels >= side:
        raise UserError(f"a shift of {pixels} would move images of {side} pixels out of sight: give less than {side}.")
