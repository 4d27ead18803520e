"""Open one image file in the channels that a network reads, and find the image files below a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from PIL import Image

from resnets.data.budget import room_for
from resnets.data.decode import BadImageError, Opened, read
from resnets.data.files import is_named_as_picture
from resnets.errors import UserError

T = TypeVar("T")


def look_at(path: str, channels: int, see: Callable[[Image.Image], T]) -> T:
    """`see(picture)` for the whole image, upright, in colour or grey; `BadImageError` if it cannot be decoded.

    Waits until there is room for the image, and keeps nothing else of it.
    """
    if channels not in (1, 3):
        raise UserError(f"images have 1 or 3 channels, but the network reads {channels}.")
    opened = Opened(read(path))
    with room_for(opened.size):
        return see(_decode(opened, channels))  # not in a variable, so that it is freed before the room is


def _decode(opened: Opened, channels: int) -> Image.Image:
    picture = Image.fromarray(opened.pixels())
    return picture if channels == 3 else picture.convert("L")


def look_at_file(path: Path, channels: int, see: Callable[[Image.Image], T]) -> T:
    """`look_at`, with a `UserError` for a bad image."""
    try:
        return look_at(str(path), channels, see)
    except BadImageError as bad:
        raise UserError(f"{path} {bad}.") from None


def open_picture(path: Path, channels: int = 3) -> Image.Image:
    """Open the whole image of a file."""
    return look_at_file(path, channels, lambda picture: picture)


def pictures_below(folder: Path) -> Iterator[Path]:
    """The files below a folder with the suffix of an image, sorted by name."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(names) if is_named_as_picture(name))
