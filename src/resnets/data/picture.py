"""One picture from a file, in as many channels as a network reads, and the pictures in a folder."""

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
    """What `see` finds in the whole picture, upright, in colour or grey; `BadImageError` says why there is none.

    It waits until there is room for the picture, of which nothing else is kept.
    """
    if channels not in (1, 3):
        raise UserError(f"pictures have 1 or 3 channels, and the network reads {channels}.")
    opened = Opened(read(path))
    with room_for(opened.size):
        return see(_decoded(opened, channels))  # without a name, so that it is gone when the room is given back


def _decoded(opened: Opened, channels: int) -> Image.Image:
    found = Image.fromarray(opened.pixels())
    return found if channels == 3 else found.convert("L")


def look_at_file(path: Path, channels: int, see: Callable[[Image.Image], T]) -> T:
    """The same, with what is wrong as a sentence to the user."""
    try:
        return look_at(str(path), channels, see)
    except BadImageError as bad:
        raise UserError(f"{path} {bad}.") from None


def open_picture(path: Path, channels: int = 3) -> Image.Image:
    """The whole picture of a file."""
    return look_at_file(path, channels, lambda picture: picture)


def pictures_below(folder: Path) -> Iterator[Path]:
    """The files below a folder that are named as pictures, in order of their names."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(names) if is_named_as_picture(name))
