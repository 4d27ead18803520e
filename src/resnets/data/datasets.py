"""A user's own data: map-style torch data sets of pairs (tensor, label)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resnets.counter_rng import draws
from resnets.data.images import Indices, split
from resnets.errors import UserError, shown

_HASHED = 64  # items of a data set, evenly spaced


@dataclass(frozen=True, eq=False)
class Datasets:
    """A training set and an optional test set, each with `len` and items (tensor, label)."""

    train: Any
    test: Any = None

    def __post_init__(self) -> None:
        for part, data in (("training", self.train), ("test", self.test)):
            if data is None and part == "test":
                continue
            if not (hasattr(data, "__len__") and hasattr(data, "__getitem__") and len(data)):
                raise UserError(f"the {part} data must be a map-style data set with items, not {shown(data)}.")
            next(fetch(data, np.array([0])))

    @property
    def name(self) -> str:
        return type(self.train).__name__

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, if the data set has them."""
        return tuple(map(str, getattr(self.train, "classes", ())))

    @cached_property
    def labels(self) -> Indices:
        """The labels of the training set, from `targets` if it has them, else by reading every item."""
        given = getattr(self.train, "targets", None)
        if given is None or len(given) != len(self.train):
            given = [label for _, label in fetch(self.train, np.arange(len(self.train)))]
        return np.array([int(label) for label in given], dtype=np.int64)

    @property
    def num_classes(self) -> int:
        return len(self.classes) or int(self.labels.max()) + 1

    @property
    def channels(self) -> int:
        return self._shape[0]

    @property
    def side(self) -> int | None:
        return max(self._shape[1:], default=None)

    @property
    def _shape(self) -> torch.Size:
        return next(fetch(self.train, np.array([0])))[0].shape

    @cached_property
    def digest(self) -> str:
        """The hash of the lengths and of some items; the others are not checked."""
        digest = hashlib.sha256()
        for data in (self.train, self.test):
            count = 0 if data is None else len(data)
            digest.update(f"{type(data).__qualname__} {count}".encode())
            some = np.unique(np.linspace(0, count - 1, min(count, _HASHED)).round().astype(np.int64))
            for image, label in fetch(data, some):
                digest.update(f"{tuple(image.shape)} {label}".encode() + image.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def split(self, n_validation: int, seed: int) -> tuple[Indices, Indices]:
        """Indices of the items to train on, and of `n_validation` held out."""
        if not n_validation:
            return np.arange(len(self.train)), np.arange(0)
        return split(self.labels, int(self.labels.max()) + 1, n_validation, seed)


def fetch(data: Any, index: Indices, seed: int = 0, epoch: int = 0) -> Iterator[tuple[Tensor, int]]:
    """Read items of a data set.

    torch's generator is seeded for each item by seed, epoch and index, so that resumed runs draw the same numbers.
    """
    for place, bits in zip(index.tolist(), draws("noise", seed, epoch, index) >> np.uint64(1), strict=True):
        torch.manual_seed(int(bits))
        item = data[place]
        if not (isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], Tensor)):
            raise UserError(f"item {place} of the data set must be a pair (tensor, label), not {shown(item)}.")
        try:
            label = int(item[1])
        except (TypeError, ValueError):
            raise UserError(f"the label of item {place} must be a whole number, not {shown(item[1])}.") from None
        yield item[0].cpu(), label
