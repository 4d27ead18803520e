"""A labelled set of images in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from resnets.counter_rng import draws
from resnets.errors import UserError

Indices = npt.NDArray[np.int64]

_HASHED = 1024  # images at a time, because those of a memory map are copied
SPLIT_SEED = 0  # the same validation set for all seeds of a training, so that they can be compared


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images, uint8 (N, C, H, W), and their labels, int64 (N,).

    The pixels may be a private memory map of the cache: writing to them changes no file.
    """

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # per channel over the training images, pixels from 0 to 1
    std: tuple[float, ...]
    train_images: npt.NDArray[np.uint8]
    train_labels: Indices
    test_images: npt.NDArray[np.uint8]
    test_labels: Indices
    known_as: tuple[str, str] = ("", "")  # see `with_digest`
    num_classes: int = dataclasses.field(init=False)
    channels: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_classes", len(self.classes))
        object.__setattr__(self, "channels", len(self.mean))
        for part, images, labels in (
            ("training", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != len(self.mean) or not len(images):
                raise UserError(f"{self.name}: {part} images must be uint8 (N, C, H, W), not {_describe(images)}.")
            if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
                raise UserError(f"{self.name}: {part} labels must be int64, one an image, not {_describe(labels)}.")
            if labels.min() < 0 or labels.max() >= len(self.classes):
                raise UserError(f"{self.name}: {part} labels must lie between 0 and {len(self.classes) - 1}.")

    @property
    def digest(self) -> str:
        """The hash of all pixels and labels in order, computed at each call; equal digests give equal trainings."""
        content = self._content()
        known, digest = self.known_as
        return digest if known == content else content

    def with_digest(self, digest: str) -> Images:
        """The same images with another digest, which names of runs contain; changed pixels or labels lose it."""
        return dataclasses.replace(self, known_as=(self._content(), digest))

    def _content(self) -> str:
        digest = hashlib.sha256()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(f"{array.shape}".encode())
            for start in range(0, len(array), _HASHED):
                digest.update(np.ascontiguousarray(array[start : start + _HASHED]).data)
        return digest.hexdigest()

    def split(self, n_validation: int, seed: int) -> tuple[Indices, Indices]:
        """Indices of the training images to train on, and of `n_validation` held out."""
        return split(self.train_labels, self.num_classes, n_validation, seed)


def split(labels: Indices, num_classes: int, n_validation: int, seed: int) -> tuple[Indices, Indices]:
    """Indices of the images to train on, and of `n_validation` held out; both ascending.

    Stratified: each class gives the same share, to within two images (one, unless classes of
    few images tie). A pure function of the
    labels, `n_validation` and `seed`; a larger validation set contains the smaller ones.
    """
    n = len(labels)
    if isinstance(n_validation, bool) or not isinstance(n_validation, int) or not 0 <= n_validation < n:
        raise UserError(f"the validation set must have 0 to {n - 1} of the {n} training images, not {n_validation}.")
    bits = draws("split", seed, 0, np.arange(n))
    by_class = np.lexsort((bits, labels))
    sizes = np.bincount(labels, minlength=num_classes)
    first = np.cumsum(sizes) - sizes
    share = np.empty(n)  # of its class drawn up to and including this image
    sorted_labels = labels[by_class]
    share[by_class] = (np.arange(n) - first[sorted_labels] + 0.5) / sizes[sorted_labels]
    chosen = np.lexsort((bits, share))
    return np.sort(chosen[n_validation:]), np.sort(chosen[:n_validation])


def _describe(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
