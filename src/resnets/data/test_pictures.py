"""Images to test on, one at a time, as the views that networks see: files in class folders, or images in memory."""

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

from resnets.chain import NetworkSpec
from resnets.data.bad_images import BadImages
from resnets.data.decode import BadImageError
from resnets.data.files import Files, class_folders, is_number, scan
from resnets.data.folder import find_test_folder
from resnets.data.images import Images
from resnets.data.picture import look_at
from resnets.data.test_crops import Views
from resnets.data.transform import to_picture, to_tensor
from resnets.errors import UserError
from resnets.metadata import Metadata

AHEAD = 1 << 26  # bytes of decoded views that wait for a network

T = TypeVar("T")
U = TypeVar("U")


class PictureViews:
    """The views of a picture, as tensors; the picture itself need not be kept."""

    def __init__(self, picture: Image.Image, ways: Iterable[Views]) -> None:
        self.views = {way: [to_tensor(view) for view in way.views(picture)] for way in set(ways)}
        self.bytes = sum(view.nbytes for views in self.views.values() for view in views)


class TestPictures(ABC):
    """Labelled pictures: their name, how many there are, and which of them could not be decoded (`bad`)."""

    __test__ = False  # no test of pytest's

    def __init__(self, name: str, count: int, bad: BadImages) -> None:
        self.name, self.count, self.bad = name, count, bad

    @abstractmethod
    def read_views(self, ways: Sequence[Views]) -> Iterator[tuple[PictureViews, int, int | str]]:
        """The views of each picture that these ways of testing see, the number of its class, and its name."""


class PictureFiles(TestPictures):
    """Pictures in class folders, decoded ahead; bad ones are skipped if the policy says so."""

    def __init__(self, files: Files, channels: int, bad: BadImages) -> None:
        super().__init__(str(files.root), len(files), bad)
        self.files, self.channels = files, channels

    def read_views(self, ways: Sequence[Views]) -> Iterator[tuple[PictureViews, int, int | str]]:
        for i, found in enumerate(map_ahead(partial(self._decode, ways), range(self.count), size_of_views)):
            if isinstance(found, BadImageError):
                self.bad.judge(self.files.path(i), str(found))
            else:
                yield found, int(self.files.labels[i]), self.files.path(i)

    def _decode(self, ways: Sequence[Views], index: int) -> PictureViews | BadImageError:
        try:
            return look_at(self.files.path(index), self.channels, lambda picture: PictureViews(picture, ways))
        except BadImageError as bad:
            return bad


class MemoryPictures(TestPictures):
    """The test images of a set like CIFAR."""

    def __init__(self, images: Images) -> None:
        super().__init__(images.name, len(images.test_images), BadImages())
        self.images = images

    def read_views(self, ways: Sequence[Views]) -> Iterator[tuple[PictureViews, int, int | str]]:
        for i, pixels in enumerate(self.images.test_images):
            yield PictureViews(to_picture(pixels), ways), int(self.images.test_labels[i]), i


def open_pictures(
    folder: str, metadata: Metadata, spec: NetworkSpec, bad_images: str, warn: Callable[[str], None]
) -> PictureFiles:
    """The pictures of a folder, or of its `val` where it has one, numbered as the weights number the classes."""
    root = Path(folder).expanduser()
    root = find_test_folder(root) or root
    found = class_folders(root)
    files = scan(root, found, _numbers(found, metadata, spec.num_classes, root))
    return PictureFiles(files, spec.in_channels, BadImages(bad_images, warn))


def _numbers(found: Sequence[str], about: Metadata, num_classes: int, root: Path) -> list[int]:
    """The class of each folder: by its name if the weights have class names, else by its number or its sorted position.

    Folders that match none of these are refused: in a wrong order all scores would be wrong.
    """
    for known in (about.folders, about.classes):
        places = {name.replace("_", " "): i for i, name in enumerate(known)}
        if len(places) == len(known) and found and all(name.replace("_", " ") in places for name in found):
            return [places[name.replace("_", " ")] for name in found]
    if all(is_number(name) and int(name) < num_classes for name in found):
        return list(map(int, found))
    wnids = all(re.fullmatch(r"n[0-9]{8}", name) for name in found)  # sorted, they are ImageNet's classes in order
    if len(found) == num_classes and (wnids or not about.classes):
        return list(range(num_classes))
    if about.classes:
        names = {name.replace("_", " ") for name in about.classes}
        other = next((name for name in found if name.replace("_", " ") not in names), found[0])
        raise UserError(
            f"{root} has a folder {other!r}, which is not one of the {num_classes} classes of the weights "
            f"({about.classes[0]}, {about.classes[-1]} ...): name the folders after the classes, or by number from 0."
        )
    raise UserError(
        f"{root} has {len(found)} class folders and the network has {num_classes} classes; "
        "name the folders by the numbers of their classes, from 0."
    )


def map_ahead(
    function: Callable[[T], U], items: Iterable[T], size: Callable[[U], int] = lambda found: 0, most: int = 16
) -> Iterator[U]:
    """function(item) for each item in order, computed ahead by threads.

    At most `most` results wait, and no further one is started while the sizes of those that wait exceed AHEAD.
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
    """The bytes of a picture's views; 0 for a picture that could not be read."""
    return found.bytes if isinstance(found, PictureViews) else 0
