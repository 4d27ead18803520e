"""Masks of dropout: those that PyTorch draws, with its random numbers, in a fraction of the time."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from resnets.engine.native.kernels import Kernels

_BYTES = 5056  # of the state of PyTorch's generator on CPUs


def draw_mask(kernels: Kernels, x: Tensor, keep: float) -> Tensor:
    """torch.empty_like(x).bernoulli_(keep), which leaves the generator as PyTorch leaves it."""
    mask = torch.empty_like(x)
    if x.numel() and _is_dense(mask) and _draws_as_pytorch(kernels):
        return _draw(kernels, mask, keep)
    return mask.bernoulli_(keep)


def _draw(kernels: Kernels, mask: Tensor, keep: float) -> Tensor:
    state = torch.get_rng_state()
    kernels.draw_mask(state, mask, keep)
    torch.set_rng_state(state)
    return mask


def _is_dense(mask: Tensor) -> bool:
    return any(mask.is_contiguous(memory_format=order) for order in (torch.contiguous_format, torch.channels_last))


@lru_cache(1)
def _draws_as_pytorch(kernels: Kernels) -> bool:
    """Whether this release of PyTorch draws masks as `masks.h` does: a few blocks of numbers are compared."""
    before = torch.get_rng_state()
    if before.numel() != _BYTES:
        return False
    try:
        for keep in (0.5, 0.3):
            x = torch.empty(1001)
            state = torch.get_rng_state()
            expected = torch.empty_like(x).bernoulli_(keep)
            after = torch.get_rng_state()
            torch.set_rng_state(state)
            if not (torch.equal(_draw(kernels, x, keep), expected) and torch.equal(torch.get_rng_state(), after)):
                return False
        return True
    finally:
        torch.set_rng_state(before)
