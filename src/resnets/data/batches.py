"""Batches to train and test with, from memory or from files. What is drawn is a function of seed and step alone."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resnets.data.augment import Augment, Normalize
from resnets.data.bad_images import BadImages
from resnets.data.batch_order import BatchOrder
from resnets.data.colour import jitter, lighting
from resnets.data.datasets import Datasets, fetch
from resnets.data.decode_workers import Piece, Views, Wanted, decode_ahead, pieces, usual_workers
from resnets.data.files import Files
from resnets.data.folder import Folder
from resnets.data.images import SPLIT_SEED, Images, Indices
from resnets.data.random_crops import View
from resnets.errors import UserError
from resnets.recipe import Recipe

Batch = tuple[Tensor, Tensor]  # what the network reads, and labels

_TESTED = 500  # images in memory at a time


class Batches(ABC):
    """The images of a training, on its device, this process's share of them."""

    def __init__(
        self, data: Images | Folder | Datasets, recipe: Recipe, seed: int, device: torch.device, share: slice
    ) -> None:
        self.recipe, self.seed, self.device, self.share = recipe, seed, device, share
        self.train, self.held = data.split(recipe.validation, SPLIT_SEED)
        self.stream = BatchOrder(len(self.train), recipe.batch, seed)
        self.augments: dict[int | None, Augment] = {}
        self.preprocessing: dict[str, object] = {}  # what a file of weights says beside mean and deviation

    normalize: Normalize
    counts: dict[str, int]
    """How many images `validation` and `test` have, as far as is known before they are read."""

    def augment(self, size: int | None) -> Augment:
        """Crops and mirror images of images scaled to `size`."""
        if size not in self.augments:
            self.augments[size] = Augment(self.normalize, self.seed, self.recipe.pad, self.recipe.flip, size)
        return self.augments[size]

    @abstractmethod
    def batch(self, step: int, size: int | None = None) -> Batch:
        """This process's share of a batch, augmented and scaled to `size`; it may end one epoch and begin the next."""

    @abstractmethod
    def plain(self, places: Indices, size: int) -> Iterator[Tensor]:
        """Training images, without augmentation, `size` at a time."""

    @abstractmethod
    def test_batches(self, split: str, share: slice) -> Iterator[Batch]:
        """A share of the images of `validation` or `test`."""


class MemoryBatches(Batches):
    """CIFAR and the like, whole on the device."""

    def __init__(self, data: Images, recipe: Recipe, seed: int, device: torch.device, share: slice) -> None:
        super().__init__(data, recipe, seed, device, share)
        if recipe.augment != "pad" or recipe.side:
            raise UserError(
                f"recipe {recipe.name} crops pictures in files (augment {recipe.augment}, side {recipe.side}), and "
                f"{data.name} is small images in memory: leave augment at pad and side at 0."
            )
        self.images = torch.from_numpy(data.train_images[self.train]).to(device)
        self.labels = torch.from_numpy(data.train_labels[self.train]).to(device)
        self.splits = {
            "validation": (data.train_images[self.held], data.train_labels[self.held]),
            "test": (data.test_images, data.test_labels),
        }
        self.counts = {split: len(labels) for split, (_, labels) in self.splits.items()}
        self.normalize = normalize_of(data, recipe).to(device)

    def batch(self, step: int, size: int | None = None) -> Batch:
        augment = self.augment(size)
        images, labels = [], []
        for epoch, index in self.stream.batch(step, self.share):
            at = index.to(self.device)
            images.append(augment(self.images.index_select(0, at), index, epoch))
            labels.append(self.labels.index_select(0, at))
        return torch.cat(images), torch.cat(labels)

    def plain(self, places: Indices, size: int) -> Iterator[Tensor]:
        for start in range(0, len(places), size):
            at = torch.from_numpy(places[start : start + size]).to(self.device)
            yield self.normalize(self.images.index_select(0, at))

    def test_batches(self, split: str, share: slice) -> Iterator[Batch]:
        images, labels = (torch.from_numpy(array[share]) for array in self.splits[split])
        for start in range(0, len(labels), _TESTED):
            part = slice(start, start + _TESTED)
            yield self.normalize(images[part].to(self.device)), labels[part].to(self.device)


class FileBatches(Batches):
    """Class folders, decoded ahead of time by worker processes."""

    def __init__(
        self,
        data: Folder,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        share: slice,
        *,
        side: int,
        bad_images: str = "error",
        workers: int | None = None,
        at_once: int = 0,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        super().__init__(data, recipe, seed, device, share)
        if recipe.normalize != "channel":
            raise UserError("images in files are normalised by channel; leave normalize at channel.")
        if recipe.sizes and recipe.augment != "pad":
            raise UserError(f"sizes go with augment pad, not with {recipe.augment}.")
        self.files, self.bad = data.train, BadImages(bad_images, warn)
        self.workers = usual_workers(device) if workers is None else workers
        self.normalize = normalize_of(data, recipe).to(device)
        self.views, self.middles = (Views(view, seed) for view in views_of(recipe, side))
        self.preprocessing = {"crop": self.middles.view.side, "resize": self.middles.view.shorter[0]}
        # The indices of each split in its files; those of one tree have no test images.
        self.splits: dict[str, tuple[Files, Indices]] = {"validation": (data.train, self.held)}
        if data.test is not None:
            self.splits["test"] = data.test, np.arange(len(data.test))
        self.counts = {split: len(index) for split, (_, index) in self.splits.items()}
        self.at_once = at_once or recipe.micro_batch or max(share.stop - share.start, 1)
        self.next = -1
        self.ahead: Iterator[Piece] = iter(())
        self.running = contextlib.ExitStack()

    # --- training -----------------------------------------------------------------------------

    def batch(self, step: int, size: int | None = None) -> Batch:
        if step != self.next:
            self.close()
            self.ahead = self.running.enter_context(decode_ahead(self.views, self._wanted(step), self.workers))
        self.next = step + 1
        images, labels = [], []
        for epoch, index in self.stream.batch(step, self.share):
            pixels, at = self._gather(epoch, len(index))
            images.append(self._augment(pixels, at, epoch, size))
            labels.append(torch.from_numpy(self.files.labels[at]).to(self.device))
        return torch.cat(images), torch.cat(labels)

    def _wanted(self, first: int) -> Iterator[Wanted]:
        for step in count(first):
            for epoch, index in self.stream.batch(step, self.share):
                yield from pieces(self.files, [(epoch, self.train[index.numpy()])])

    def _gather(self, epoch: int, number: int) -> tuple[Tensor, Indices]:
        """The next so many images, and their indices. For a bad one its next good neighbour stands in."""
        found: list[Piece] = []
        while sum(len(piece.pixels) for piece in found) < number:
            found.append(self._mend(next(self.ahead)))
        at = np.array([i for piece in found for i in piece.wanted.index])
        return self._move(np.concatenate([piece.pixels for piece in found])), at

    def _mend(self, piece: Piece) -> Piece:
        for place, fault in piece.faults.items():
            self.bad.judge(piece.wanted.paths[place], fault)
            for index in self._neighbours(piece.wanted.index[place]):
                (one,) = pieces(self.files, [(piece.wanted.epoch, np.array([index]))])
                other = self.views[one]
                if not other.faults:
                    piece.pixels[place] = other.pixels[0]
                    piece.wanted.index[place] = index
                    break
            else:
                raise UserError(f"{self.files.root} has no image that can be read.")
        return piece

    def _neighbours(self, index: int) -> Iterator[int]:
        """The training images after an image, round to it."""
        place = int(np.searchsorted(self.train, index))
        return (int(self.train[(place + k) % len(self.train)]) for k in range(1, len(self.train)))

    def _move(self, pixels: np.ndarray) -> Tensor:
        """On the device, as images (N, 3, side, side) whose channels lie together."""
        images = torch.from_numpy(pixels)
        if self.device.type == "cuda":
            images = images.pin_memory()
        return images.to(self.device, non_blocking=True).permute(0, 3, 1, 2)

    def _augment(self, images: Tensor, at: Indices, epoch: int, size: int | None) -> Tensor:
        recipe = self.recipe
        if recipe.augment == "pad":
            x = self.augment(size)(images, torch.from_numpy(at), epoch)
        elif recipe.jitter:
            x = jitter(images.float().mul_(1 / 255), recipe.jitter, self.seed, epoch, at)
            x = x.sub_(self.normalize.mean).div_(self.normalize.std)
        else:
            x = self.normalize(images)
        if recipe.lighting:
            shift = lighting(recipe.lighting, self.seed, epoch, at).to(self.device)
            x += shift[:, :, None, None] / self.normalize.std
        return x

    # --- testing ------------------------------------------------------------------------------

    def plain(self, places: Indices, size: int) -> Iterator[Tensor]:
        for pixels, _ in self._middle(self.files, self.train[places], size):
            yield self.normalize(self._move(pixels))

    def test_batches(self, split: str, share: slice) -> Iterator[Batch]:
        files, index = self.splits[split]
        for pixels, at in self._middle(files, index[share], self.at_once):
            yield self.normalize(self._move(pixels)), torch.from_numpy(files.labels[at]).to(self.device)

    def _middle(self, files: Files, index: Indices, size: int) -> Iterator[tuple[np.ndarray, Indices]]:
        """The middles of images, `size` at a time, without bad ones."""

        def cut() -> Iterable[Wanted]:
            for start in range(0, len(index), size):
                yield from pieces(files, [(0, index[start : start + size])])

        held: list[np.ndarray] = []
        at: list[int] = []
        seen = 0
        with decode_ahead(self.middles, cut(), self.workers) as found:
            for piece in found:
                for place, fault in piece.faults.items():
                    self.bad.judge(piece.wanted.paths[place], fault)
                good = [k for k in range(len(piece.pixels)) if k not in piece.faults]
                held.append(piece.pixels[good])
                at += [piece.wanted.index[k] for k in good]
                seen += len(piece.pixels)
                if (seen % size == 0 or seen == len(index)) and at:
                    yield np.concatenate(held), np.array(at)
                    held, at = [], []

    def close(self) -> None:
        """Stop the processes that decode ahead."""
        self.running.close()
        self.next = -1


class DatasetBatches(Batches):
    """A user's data sets: items as they are, without normalization or augmentation of ours."""

    def __init__(self, data: Datasets, recipe: Recipe, seed: int, device: torch.device, share: slice) -> None:
        super().__init__(data, recipe, seed, device, share)
        if recipe.sizes:
            raise UserError("sizes scale images of ours; give data sets that have the size you want.")
        self.splits: dict[str, tuple[Any, Indices]] = {"validation": (data.train, self.held)}
        if data.test is not None:
            self.splits["test"] = data.test, np.arange(len(data.test))
        self.counts = {split: len(index) for split, (_, index) in self.splits.items()}

    def batch(self, step: int, size: int | None = None) -> Batch:
        pieces = [(epoch, self.train[index.numpy()]) for epoch, index in self.stream.batch(step, self.share)]
        items = [item for epoch, index in pieces for item in fetch(self.data, index, self.seed, epoch)]
        return self._collate(items)

    def _collate(self, items: list[tuple[Tensor, int]]) -> Batch:
        images = torch.stack([image for image, _ in items])
        return images.to(self.device), torch.tensor([label for _, label in items]).to(self.device)

    @property
    def data(self) -> Any:
        return self.splits["validation"][0]

    def plain(self, places: Indices, size: int) -> Iterator[Tensor]:
        for start in range(0, len(places), size):
            yield self._collate(list(fetch(self.data, self.train[places[start : start + size]])))[0]

    def test_batches(self, split: str, share: slice) -> Iterator[Batch]:
        data, index = self.splits[split]
        size = self.recipe.micro_batch or self.recipe.batch
        for start in range(0, len(index[share]), size):
            yield self._collate(list(fetch(data, index[share][start : start + size])))


class TrainingSplit(NamedTuple):
    """How a recipe uses the training images."""

    examples: int  # to train on
    statistics: str  # the hash of the mean and deviation of the pixels; data sets of a user are normalised by the user


def split_training(data: Images | Folder | Datasets, recipe: Recipe) -> TrainingSplit:
    """Hold out the validation images of a recipe."""
    statistics = "" if isinstance(data, Datasets) else normalize_of(data, recipe).digest
    return TrainingSplit(len(data.split(recipe.validation, SPLIT_SEED)[0]), statistics)


def normalize_of(data: Images | Folder, recipe: Recipe) -> Normalize:
    """How the pixels of a training are normalised; a mean image is that of the images trained on alone."""
    if isinstance(data, Folder):
        return Normalize.by_channel(data.mean, data.std)
    return Normalize.of(data, recipe.normalize, data.split(recipe.validation, SPLIT_SEED)[0])


def views_of(recipe: Recipe, side: int) -> tuple[View, View]:
    """What is seen of an image in training, and in testing. The papers' sides belong to crops of 224."""
    if recipe.augment == "pad":  # whole images; crops and mirroring follow on the device
        whole = View("centre", side, (side, side))
        return whole, whole
    low, high = (round(shorter * side / 224) for shorter in recipe.shorter)
    return View(recipe.augment, side, (low, high), recipe.flip), View("centre", side, (round(256 * side / 224),) * 2)
