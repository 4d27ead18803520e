"""One picture from a file: upright, eight bits, in as many channels as a network reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from resnets.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

# Read by Pillow itself; others would start programs or are seldom pictures.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB"}


def open_picture(path: Path, channels: int = 3) -> Image.Image:
    """The whole picture, turned as its EXIF says, on white where it is transparent; the first one of an animation."""
    from PIL import Image, ImageOps

    if channels not in _MODES:
        raise UserError(f"pictures have 1 or 3 channels, and the network reads {channels}.")
    try:
        with Image.open(path, formats=FORMATS) as file:
            picture = ImageOps.exif_transpose(file)
            return _opaque(_eight_bits(picture)).convert(_MODES[channels])
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except Exception as error:  # a broken file may fail in any way
        raise UserError(f"{path} is no picture that can be read: {_reason(error)}.") from error


def pictures_below(folder: Path) -> Iterator[Path]:
    """The files below a folder that are named as pictures, in order of their names."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(names) if is_named_as_picture(name))


def is_named_as_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Sixteen bits, which Pillow would cut off at 255, become their upper eight."""
    from PIL import Image

    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8))


def _opaque(picture: Image.Image) -> Image.Image:
    from PIL import Image

    if not picture.has_transparency_data:
        return picture
    layer = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return "it is none of " + ", ".join(FORMATS) if text.startswith("cannot identify") else text or type(error).__name__
