"""The images of each step, in one process or many, from any step on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from resnets.counter_rng import order
from resnets.recipe import Epochs


@dataclass(frozen=True)
class BatchOrder(Epochs):
    """An endless stream of `n` images, each once an epoch in a new order, cut into batches of equal size.

    A batch at the end of an epoch continues with the next one, as in the authors' Caffe, so no batch is short.
    Everything is a pure function of seed and step, so training can start at any step.
    """

    seed: int

    def batch(self, step: int, share: slice = slice(None)) -> list[tuple[int, Tensor]]:
        """The indices of batch `step`, or of a share of it, as pairs of an epoch and its indices."""
        low, high, _ = share.indices(self.size)
        at, end = step * self.size + low, step * self.size + high
        pieces = []
        while at < end:
            epoch, place = divmod(at, self.n)
            count = min(end - at, self.n - place)
            pieces.append((epoch, _order(self.n, self.seed, epoch)[place : place + count]))
            at += count
        return pieces


@lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> Tensor:
    return torch.from_numpy(order(n, seed, epoch))
