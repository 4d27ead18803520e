"""Labelled pictures to test on: a tree of class folders, or images in memory, one at a time."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from resnets.data.images import Images
from resnets.data.picture import is_named_as_picture, open_picture
from resnets.errors import UserError
from resnets.interop.about import About

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
U = TypeVar("U")


class Labelled(Protocol):
    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[Image.Image, int]]:
        """Pictures and their classes' numbers."""


@dataclass(frozen=True)
class Folder:
    """Pictures in class folders; `labels` has the number of each file's class."""

    name: str
    files: Sequence[Path]
    labels: Sequence[int]
    channels: int = 3

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[tuple[Image.Image, int]]:
        pictures = ahead(lambda path: open_picture(path, self.channels), self.files)
        return zip(pictures, self.labels, strict=True)


@dataclass(frozen=True)
class InMemory:
    """The test images of a set like CIFAR."""

    images: Images

    @property
    def name(self) -> str:
        return self.images.name

    def __len__(self) -> int:
        return len(self.images.test_images)

    def __iter__(self) -> Iterator[tuple[Image.Image, int]]:
        from PIL import Image

        for pixels, label in zip(self.images.test_images, self.images.test_labels, strict=True):
            yield Image.fromarray(pixels.transpose(1, 2, 0).squeeze()), int(label)


def folder(root: Path, about: About, num_classes: int, channels: int = 3) -> Folder:
    """The pictures of `root`, or of its `val` where it has one, numbered as the weights number the classes."""
    root = next((root / name for name in ("val", "test") if (root / name).is_dir()), root)
    found = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    number = _numbered(found, about, num_classes, root)
    files, labels = [], []
    for name in found:
        pictures = sorted(entry for entry in (root / name).iterdir() if is_named_as_picture(entry.name))
        files += pictures
        labels += [number[name]] * len(pictures)
    if not files:
        raise UserError(f"{root} has no pictures in class folders, as in {root / 'cat' / '1.jpg'}.")
    return Folder(str(root), files, labels, channels)


def _numbered(found: list[str], about: About, num_classes: int, root: Path) -> dict[str, int]:
    """The class of each folder: by its name where the weights know names, else by its number or its place in order.

    Folders whose classes cannot be told are refused: scored in another order they would all be wrong.
    """
    for known in (about.folders, about.classes):
        places = {name.replace("_", " "): i for i, name in enumerate(known)}
        if len(places) == len(known) and found and all(name.replace("_", " ") in places for name in found):
            return {name: places[name.replace("_", " ")] for name in found}
    if all(name.isdecimal() and int(name) < num_classes for name in found):
        return {name: int(name) for name in found}
    wnids = all(re.fullmatch(r"n[0-9]{8}", name) for name in found)  # ImageNet numbers its classes in their order
    if len(found) == num_classes and (wnids or not about.classes):
        return {name: i for i, name in enumerate(found)}
    if about.classes:
        names = {name.replace("_", " ") for name in about.classes}
        other = next((name for name in found if name.replace("_", " ") not in names), found[0])
        raise UserError(
            f"{root} has a folder {other!r}, which is none of the weights' {num_classes} classes ({about.classes[0]}, "
            f"{about.classes[-1]} ...): name the folders after the classes, or by their numbers from 0."
        )
    raise UserError(
        f"{root} has {len(found)} class folders and the network tells {num_classes} classes apart; "
        "name the folders by the numbers of their classes, from 0."
    )


def ahead(function: Callable[[T], U], items: Iterable[T], most: int = 16) -> Iterator[U]:
    """function(item) for each item in order, computed by threads, at most so many before they are asked for."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        waiting: deque[Future[U]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
