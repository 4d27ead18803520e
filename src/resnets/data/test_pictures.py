"""Pictures to test on, one at a time: files in class folders, or images in memory, as the views that networks see."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from PIL import Image

from resnets.data.bad_images import BadImages
from resnets.data.decode import BadImageError
from resnets.data.files import Files, class_folders, is_number, scan
from resnets.data.folder import tests_in
from resnets.data.images import Images
from resnets.data.picture import look_at
from resnets.data.test_crops import Views
from resnets.data.transform import to_picture, to_tensor
from resnets.errors import UserError
from resnets.metadata import Metadata
from resnets.spec import Spec

AHEAD = 1 << 26  # bytes of views that wait for a network

T = TypeVar("T")
U = TypeVar("U")


class Seen:
    """What some ways of testing see of a picture, as tensors; the picture itself need not be kept."""

    def __init__(self, picture: Image.Image, ways: Iterable[Views]) -> None:
        self.views = {way: [to_tensor(view) for view in way.views(picture)] for way in set(ways)}
        self.bytes = sum(view.nbytes for views in self.views.values() for view in views)


class TestPictures(ABC):
    """Labelled pictures: their name, how many there are, and which of them could not be decoded (`bad`)."""

    __test__ = False  # no test of pytest's

    def __init__(self, name: str, count: int, bad: BadImages) -> None:
        self.name, self.count, self.bad = name, count, bad

    @abstractmethod
    def read_views(self, ways: Sequence[Views]) -> Iterator[tuple[Seen, int, int | str]]:
        """The views of each picture that these ways of testing see, the number of its class, and its name."""


class PictureFiles(TestPictures):
    """Pictures in class folders, decoded ahead; bad ones are skipped if the policy says so."""

    def __init__(self, files: Files, channels: int, bad: BadImages) -> None:
        super().__init__(str(files.root), len(files), bad)
        self.files, self.channels = files, channels

    def read_views(self, ways: Sequence[Views]) -> Iterator[tuple[Seen, int, int | str]]:
        for i, found in enumerate(ahead(partial(self._decode, ways), range(self.count), size_of_views)):
            if isinstance(found, BadImageError):
                self.bad.judge(self.files.path(i), str(found))
            else:
                yield found, int(self.files.labels[i]), self.files.path(i)

    def _decode(self, ways: Sequence[Views], index: int) -> Seen | BadImageError:
        try:
            return look_at(self.files.path(index), self.channels, lambda picture: Seen(picture, ways))
        except BadImageError as bad:
            return bad


class MemoryPictures(TestPictures):
    """The test images of a set like CIFAR."""

    def __init__(self, images: Images) -> None:
        super().__init__(images.name, len(images.test_images), BadImages())
        self.images = images

    def read_views(self, ways: Sequence[Views]) -> Iterator[tuple[Seen, int, int | str]]:
        for i, pixels in enumerate(self.images.test_images):
            yield Seen(to_picture(pixels), ways), int(self.images.test_labels[i]), i


def open_pictures(
    folder: str, metadata: Metadata, spec: Spec, bad_images: str, warn: Callable[[str], None]
) -> PictureFiles:
    """The pictures of a folder, or of its `val` where it has one, numbered as the weights number the classes."""
    root = Path(folder).expanduser()
    root = tests_in(root) or root
    found = class_folders(root)
    files = scan(root, found, _numbers(found, metadata, spec.num_classes, root))
    return PictureFiles(files, spec.in_channels, BadImages(bad_images, warn))


def _numbers(found: Sequence[str], about: Metadata, num_classes: int, root: Path) -> list[int]:
    """The class of each folder: by its name where the weights know names, else by its number or its place in order.

    Folders whose classes cannot be told are refused: scored in another order they would all be wrong.
    """
    for known in (about.folders, about.classes):
        places = {name.replace("_", " "): i for i, name in enumerate(known)}
        if len(places) == len(known) and found and all(name.replace("_", " ") in places for name in found):
            return [places[name.replace("_", " ")] for name in found]
    if all(is_number(name) and int(name) < num_classes for name in found):
        return list(map(int, found))
    wnids = all(re.fullmatch(r"n[0-9]{8}", name) for name in found)  # ImageNet numbers its classes in their order
    if len(found) == num_classes and (wnids or not about.classes):
        return list(range(num_classes))
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


def ahead(
    function: Callable[[T], U], items: Iterable[T], size: Callable[[U], int] = lambda found: 0, most: int = 16
) -> Iterator[U]:
    """function(item) for each item in order, computed by threads, some before they are asked for.

    Those are at most `most`, and no further one is begun while the sizes of those that are done add up to AHEAD.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        waiting: deque[Future[U]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            while len(waiting) >= most or sum(size(done.result()) for done in waiting if done.done()) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def size_of_views(found: object) -> int:
    """The bytes of what was seen of a picture; a picture that could not be read has none."""
    return found.bytes if isinstance(found, Seen) else 0
