"""One picture from a file, in as many channels as a network reads, and the pictures in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from resnets.data.decode import BadImageError, decode
from resnets.data.files import SUFFIXES
from resnets.errors import UserError


def open_picture(path: Path, channels: int = 3) -> Image.Image:
    """The whole picture, upright, in colour or grey."""
    if channels not in (1, 3):
        raise UserError(f"pictures have 1 or 3 channels, and the network reads {channels}.")
    try:
        picture = Image.fromarray(decode(path.read_bytes()))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except BadImageError as error:
        raise UserError(f"{path} {error}.") from None
    return picture if channels == 3 else picture.convert("L")


def pictures_below(folder: Path) -> Iterator[Path]:
    """The files below a folder that are named as pictures, in order of their names."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(names) if is_named_as_picture(name))


def is_named_as_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")
