"""Batches for training and testing, from memory, files or a user's data sets. Draws depend on seed and step only."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resnets.data.augment import Augment, Normalize
from resnets.data.bad_images import BadImages
from resnets.data.batch_order import BatchOrder
from resnets.data.colour import jitter, lighting
from resnets.data.contrast import KINDS, fit_contrast, hash_source
from resnets.data.datasets import Datasets, fetch
from resnets.data.decode_workers import Piece, Request, Views, decode_ahead, pieces, usual_workers
from resnets.data.files import Files
from resnets.data.folder import Folder
from resnets.data.images import SPLIT_SEED, Images, Indices
from resnets.data.random_crops import View
from resnets.errors import UserError
from resnets.recipe import Recipe

Batch = tuple[Tensor, Tensor]  # inputs and labels

_TEST_BATCH = 500  # of images in memory
_WHITENED, _AT_ONCE = 5000, 100  # images whose patches become the first filters


class Batches(ABC):
    """The batches of a training on its device: this process's share of each."""

    def __init__(
        self, data: Images | Folder | Datasets, recipe: Recipe, seed: int, device: torch.device, share: slice
    ) -> None:
        self.recipe, self.seed, self.device, self.share = recipe, seed, device, share
        self.train, self.held = data.split(recipe.validation, SPLIT_SEED)
        self.stream = BatchOrder(len(self.train), recipe.batch, seed)
        self.augments: dict[int | None, Augment] = {}
        self.preprocessing: dict[str, object] = {}  # what a file of weights says beside mean and deviation

    normalize: Normalize
    splits: dict[str, tuple[Any, Any]]
    """Images, and labels or indices, of `validation` and `test`."""

    counts: dict[str, int]
    """How many images each split has, with those that turn out to be bad."""

    def augment(self, size: int | None) -> Augment:
        """The augmentation of images scaled to `size`."""
        if size not in self.augments:
            self.augments[size] = Augment(self.normalize, self.seed, self.recipe.pad, self.recipe.flip, size)
        return self.augments[size]

    @abstractmethod
    def batch(self, step: int, size: int | None = None) -> Batch:
        """This process's share of a batch, augmented and scaled to `size`; it may contain the end of an epoch."""

    @abstractmethod
    def plain(self, places: Indices, size: int) -> Iterator[Tensor]:
        """Training images, without augmentation, `size` at a time."""

    def first_images(self) -> Iterator[Tensor]:
        """Training images without augmentation, of whose patches `whiten` makes the first filters."""
        return self.plain(np.arange(min(_WHITENED, len(self.train))), _AT_ONCE)

    @abstractmethod
    def test_batches(self, split: str, share: slice) -> Iterator[Batch]:
        """A share of the images of `validation` or `test`."""


class MemoryBatches(Batches):
    """A small set such as CIFAR, all of it on the device."""

    def __init__(self, data: Images, recipe: Recipe, seed: int, device: torch.device, share: slice) -> None:
        super().__init__(data, recipe, seed, device, share)
        if recipe.augment != "pad" or recipe.side:
            raise UserError(
                f"recipe {recipe.name} crops images in files (augment {recipe.augment}, side {recipe.side}), but "
                f"{data.name} has small images in memory: leave augment at pad and side at 0."
            )
        self.images = torch.from_numpy(data.train_images[self.train]).to(device)
        self.labels = torch.from_numpy(data.train_labels[self.train]).to(device)
        self.splits = {
            "validation": (data.train_images[self.held], data.train_labels[self.held]),
            "test": (data.test_images, data.test_labels),
        }
        self.counts = _count(self.splits)
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
        for start in range(0, len(labels), _TEST_BATCH):
            part = slice(start, start + _TEST_BATCH)
            yield self.normalize(images[part].to(self.device)), labels[part].to(self.device)


class FileBatches(Batches):
    """Class folders, decoded by worker processes."""

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
            raise UserError(f"sizes need augment pad, not {recipe.augment}.")
        self.files, self.bad = data.train, BadImages(bad_images, warn)
        self.workers = usual_workers(device) if workers is None else workers
        self.normalize = normalize_of(data, recipe).to(device)
        self.views, self.middles = (Views(view, seed) for view in views_of(recipe, side))
        self.preprocessing = {"crop": self.middles.view.side, "resize": self.middles.view.shorter[0]}
        self.splits = _splits(data, self.held)
        self.counts = _count(self.splits)
        self.at_once = at_once or recipe.micro_batch or max(share.stop - share.start, 1)
        self.next = -1
        self.ahead: Iterator[Piece] = iter(())
        self.running = contextlib.ExitStack()

    # --- training -----------------------------------------------------------------------------

    def batch(self, step: int, size: int | None = None) -> Batch:
        if step != self.next:
            self.close()
            self.ahead = self.running.enter_context(decode_ahead(self.views, self._requests(step), self.workers))
        self.next = step + 1
        images, labels = [], []
        for epoch, index in self.stream.batch(step, self.share):
            pixels, at = self._gather(epoch, len(index))
            images.append(self._augment(pixels, at, epoch, size))
            labels.append(torch.from_numpy(self.files.labels[at]).to(self.device))
        return torch.cat(images), torch.cat(labels)

    def _requests(self, first: int) -> Iterator[Request]:
        for step in count(first):
            for epoch, index in self.stream.batch(step, self.share):
                yield from pieces(self.files, [(epoch, self.train[index.numpy()])])

    def _gather(self, epoch: int, number: int) -> tuple[Tensor, Indices]:
        """The next `number` images, and their indices."""
        found: list[Piece] = []
        while sum(len(piece.pixels) for piece in found) < number:
            found.append(self._replace_bad(next(self.ahead)))
        at = np.array([i for piece in found for i in piece.request.index])
        return self._to_device(np.concatenate([piece.pixels for piece in found])), at

    def _replace_bad(self, piece: Piece) -> Piece:
        """Put the next good image of the folder in the place of each bad one."""
        for place, fault in piece.faults.items():
            self.bad.judge(piece.request.paths[place], fault)
            for index in self._neighbours(piece.request.index[place]):
                (one,) = pieces(self.files, [(piece.request.epoch, np.array([index]))])
                other = self.views[one]
                if not other.faults:
                    piece.pixels[place] = other.pixels[0]
                    piece.request.index[place] = index
                    break
            else:
                raise UserError(f"{self.files.root} has no image that can be read.")
        return piece

    def _neighbours(self, index: int) -> Iterator[int]:
        """The training images after this one, and then those before it."""
        place = int(np.searchsorted(self.train, index))
        return (int(self.train[(place + k) % len(self.train)]) for k in range(1, len(self.train)))

    def _to_device(self, pixels: np.ndarray) -> Tensor:
        """Images (N, 3, side, side) on the device, in channels-last order."""
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
            yield self.normalize(self._to_device(pixels))

    def test_batches(self, split: str, share: slice) -> Iterator[Batch]:
        files, index = self.splits[split]
        for pixels, at in self._middle(files, index[share], self.at_once):
            yield self.normalize(self._to_device(pixels)), torch.from_numpy(files.labels[at]).to(self.device)

    def _middle(self, files: Files, index: Indices, size: int) -> Iterator[tuple[np.ndarray, Indices]]:
        """Centre crops, `size` at a time, without bad images."""

        def requests() -> Iterable[Request]:
            for start in range(0, len(index), size):
                yield from pieces(files, [(0, index[start : start + size])])

        pixels: list[np.ndarray] = []
        at: list[int] = []
        seen = 0
        with decode_ahead(self.middles, requests(), self.workers) as stream:
            for piece in stream:
                for place, fault in piece.faults.items():
                    self.bad.judge(piece.request.paths[place], fault)
                good = [k for k in range(len(piece.pixels)) if k not in piece.faults]
                pixels.append(piece.pixels[good])
                at += [piece.request.index[k] for k in good]
                seen += len(piece.pixels)
                if (seen % size == 0 or seen == len(index)) and at:
                    yield np.concatenate(pixels), np.array(at)
                    pixels, at = [], []

    def close(self) -> None:
        """Stop the processes that decode ahead."""
        self.running.close()
        self.next = -1


class DatasetBatches(Batches):
    """A user's data sets: items as they are, neither normalised nor augmented."""

    def __init__(self, data: Datasets, recipe: Recipe, seed: int, device: torch.device, share: slice) -> None:
        super().__init__(data, recipe, seed, device, share)
        if recipe.sizes:
            raise UserError("sizes do not apply to your own data sets; scale the images there.")
        self.splits = _splits(data, self.held)
        self.counts = _count(self.splits)

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


def _count(splits: Mapping[str, tuple[Any, Any]]) -> dict[str, int]:
    return {split: len(index) for split, (_, index) in splits.items()}


def _splits(data: Folder | Datasets, held: Indices) -> dict[str, tuple[Any, Indices]]:
    """The data and the indices of each split; a single tree has no test images."""
    test = {} if data.test is None else {"test": (data.test, np.arange(len(data.test)))}
    return {"validation": (data.train, held), **test}


class TrainingSplit(NamedTuple):
    """How a recipe uses the training images."""

    examples: int  # to train on
    statistics: str  # the hash of the mean and deviation of the pixels; data sets of a user are normalised by the user


def split_training(data: Images | Folder | Datasets, recipe: Recipe) -> TrainingSplit:
    """Hold out the validation images of a recipe."""
    trained = data.split(recipe.validation, SPLIT_SEED)[0]
    if isinstance(data, Images) and recipe.normalize in KINDS:
        return TrainingSplit(len(trained), hash_source(data, recipe.normalize, trained))
    statistics = "" if isinstance(data, Datasets) else normalize_of(data, recipe).digest
    return TrainingSplit(len(trained), statistics)


def normalize_of(data: Images | Folder, recipe: Recipe) -> Normalize:
    """The normalisation for a training; a mean image is computed without the validation images."""
    if isinstance(data, Folder):
        return Normalize.by_channel(data.mean, data.std)
    if recipe.normalize in KINDS:
        return fit_contrast(data, recipe.normalize, data.split(recipe.validation, SPLIT_SEED)[0])
    return Normalize.of(data, recipe.normalize, data.split(recipe.validation, SPLIT_SEED)[0])


def views_of(recipe: Recipe, side: int) -> tuple[View, View]:
    """The views for training and for testing. The papers' shorter sides are for crops of 224, so scale them."""
    if recipe.augment == "pad":  # whole images, which are cropped and mirrored on the device
        whole = View("centre", side, (side, side))
        return whole, whole
    low, high = (round(shorter * side / 224) for shorter in recipe.shorter)
    return View(recipe.augment, side, (low, high), recipe.flip), View("centre", side, (round(256 * side / 224),) * 2)
