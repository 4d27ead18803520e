"""One picture from a file, in as many channels as a network reads, and the pictures in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from resnets.data.decode import BadImageError, decode, read
from resnets.data.files import is_named_as_picture
from resnets.errors import UserError


def picture(path: str, channels: int = 3) -> Image.Image:
    """The whole picture, upright, in colour or grey; `BadImageError` says why there is none."""
    if channels not in (1, 3):
        raise UserError(f"pictures have 1 or 3 channels, and the network reads {channels}.")
    found = Image.fromarray(decode(read(path)))
    return found if channels == 3 else found.convert("L")


def open_picture(path: Path, channels: int = 3) -> Image.Image:
    """The same, with what is wrong as a sentence to the user."""
    try:
        return picture(str(path), channels)
    except BadImageError as bad:
        raise UserError(f"{path} {bad}.") from None


def pictures_below(folder: Path) -> Iterator[Path]:
    """The files below a folder that are named as pictures, in order of their names."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(names) if is_named_as_picture(name))
