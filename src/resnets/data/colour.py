"""Random colour changes of a batch of images with values from 0 to 1, on their device.

Lighting is AlexNet's, which the papers use: along the principal components of ImageNet's pixels. Jitter is that of
the Torch code: brightness, contrast and saturation in a random order.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from resnets.counter_rng import draws, uniform

# Variances of RGB over ImageNet along their principal axes, and the axes as columns.
VARIANCES = np.array([0.2175, 0.0188, 0.0045])
AXES = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
LUMA = (0.299, 0.587, 0.114)
_ORDERS = tuple(permutations(range(3)))


def lighting(strength: float, seed: int, epoch: int, index: npt.NDArray[np.int64]) -> Tensor:
    """The shift of R, G and B of each image: (N, 3). `strength` is the std of the three normal draws."""
    u = uniform(draws("lighting", seed, epoch, index[:, None] * 6 + np.arange(6)))
    normal = np.sqrt(-2 * np.log1p(-u[:, :3])) * np.cos(2 * math.pi * u[:, 3:])  # by Box and Muller
    return torch.from_numpy((strength * normal * VARIANCES) @ AXES.T).float()


def jitter(images: Tensor, strength: float, seed: int, epoch: int, index: npt.NDArray[np.int64]) -> Tensor:
    """Multiply brightness, contrast and saturation of each image by 1 +- at most `strength`."""
    u = uniform(draws("jitter", seed, epoch, index[:, None] * 4 + np.arange(4)))
    factors = torch.from_numpy(1 + strength * (2 * u[:, :3] - 1)).to(images)
    order = (u[:, 3] * len(_ORDERS)).astype(np.int64)
    for number, steps in enumerate(_ORDERS):
        chosen = torch.from_numpy(np.flatnonzero(order == number)).to(images.device)
        if len(chosen):
            some = images.index_select(0, chosen)
            for step in steps:
                some = _STEPS[step](some, factors[chosen, step].view(-1, 1, 1, 1))
            images = images.index_copy(0, chosen, some)
    return images


def _grey(images: Tensor) -> Tensor:
    weights = torch.tensor(LUMA, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def _brightness(images: Tensor, factor: Tensor) -> Tensor:
    return images * factor


def _contrast(images: Tensor, factor: Tensor) -> Tensor:
    mean = _grey(images).mean((1, 2, 3), keepdim=True)
    return mean + (images - mean) * factor


def _saturation(images: Tensor, factor: Tensor) -> Tensor:
    grey = _grey(images)
    return grey + (images - grey) * factor


_STEPS = (_brightness, _contrast, _saturation)
