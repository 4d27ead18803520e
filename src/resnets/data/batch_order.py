"""Which images each step sees, on one process or on many, from any step on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from resnets.data.counter_rng import order
from resnets.errors import UserError


@dataclass(frozen=True)
class BatchOrder:
    """An endless stream of `n` images, each once an epoch in a new order, cut into batches of equal size.

    A batch that reaches the end of an epoch goes on with the next, as the authors' Caffe did, so no batch is
    short. Everything is a pure function of the seed and the step: training may begin anywhere.
    """

    n: int
    size: int  # of a batch, over all processes
    seed: int

    def __post_init__(self) -> None:
        if self.n < 1 or self.size < 1:
            raise UserError(f"{self.n} images cannot be had in batches of {self.size}.")

    def batch(self, step: int, share: slice = slice(None)) -> list[tuple[int, Tensor]]:
        """The indices of batch `step`, or of a share of it, in pieces that each lie in one epoch."""
        low, high, _ = share.indices(self.size)
        at, end = step * self.size + low, step * self.size + high
        pieces = []
        while at < end:
            epoch, place = divmod(at, self.n)
            count = min(end - at, self.n - place)
            pieces.append((epoch, _order(self.n, self.seed, epoch)[place : place + count]))
            at += count
        return pieces

    def epoch(self, step: int) -> int:
        """The epoch in which a batch begins."""
        return step * self.size // self.n

    def first(self, epoch: int) -> int:
        """The first step that begins in an epoch, or after it where one batch spans more."""
        return -(-epoch * self.n // self.size)

    def steps(self, epoch: int) -> int:
        """How many batches begin in an epoch."""
        return self.first(epoch + 1) - self.first(epoch)

    def place(self, step: int) -> int:
        """The number of a batch within its epoch."""
        return step - self.first(self.epoch(step))


@lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> Tensor:
    return torch.from_numpy(order(n, seed, epoch))
