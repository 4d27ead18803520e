"""Decode a part of a JPEG with a small C++ wrapper around libjpeg-turbo, compiled on first use.

Rows below the part are not read and columns beside it are not computed, so a crop costs less than the whole image.
Without a compiler or the headers of libjpeg-turbo `load` returns None, and PIL decodes.
"""

from __future__ import annotations

import ctypes
import io
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from resnets.native_build import Library, NotBuiltError, Ways

_FLAGS = (("-std=c++17", "-O3", "-fPIC", "-march=native"), ("-std=c++17", "-O3", "-fPIC"))
_END = b"\xff\xd9"
_BEHIND = 1024  # bytes that some cameras write after the end of the image


class Box(NamedTuple):
    """A rectangle in whole pixels."""

    left: int
    top: int
    width: int
    height: int

    def cut(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]


class Jpeg:
    """The compiled functions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._size, self._part = library.jpeg_size, library.jpeg_part
        self._size.argtypes = (ctypes.c_char_p, size, pointer, pointer)
        self._part.argtypes = (ctypes.c_char_p, size, *(number,) * 7, pointer)

    def size(self, data: bytes) -> tuple[int, int] | None:
        """Width and height, if the file is an ordinary one: YCbCr or grey, not turned by EXIF, not cut off."""
        if data[:2] != b"\xff\xd8" or data.rfind(_END, max(len(data) - _BEHIND, 0)) < 0:
            return None
        width, height = ctypes.c_int(), ctypes.c_int()
        usual = self._size(data, len(data), ctypes.byref(width), ctypes.byref(height))
        return (width.value, height.value) if usual else None

    def part(self, data: bytes, shrink: int, size: tuple[int, int], box: Box, out: npt.NDArray[np.uint8]) -> bool:
        """Decode a box of the image, which has `size` at 1/`shrink`, to the beginning of `out`; False if that fails."""
        if len(out) < 3 * box.width * box.height:
            raise ValueError(f"{len(out)} bytes are too few for {box}")
        return bool(self._part(data, len(data), shrink, *size, *box, out.ctypes.data))


@cache
def load() -> Jpeg | None:
    """The compiled functions, or None where they cannot be compiled."""
    source = Path(__file__).with_name("jpeg.cpp")
    try:
        return Library(source, "a JPEG decoder", Ways(_FLAGS, (("-ljpeg",),)), _open).load()[0]
    except NotBuiltError:
        return None


def _open(path: Path) -> Jpeg:
    """Load a library, and check that it decodes correctly."""
    try:
        jpeg = Jpeg(ctypes.CDLL(str(path)))
    except (OSError, AttributeError):
        raise NotBuiltError("the compiled decoder does not load") from None
    if not _is_correct(jpeg):
        raise NotBuiltError("the compiled decoder decodes wrong pixels")
    return jpeg


def _is_correct(jpeg: Jpeg) -> bool:
    """Compare a part of a small image with PIL's."""
    file = io.BytesIO()
    x, y = np.mgrid[:50, :40]
    Image.fromarray(np.stack([4 * x, 5 * y, x + y], 2).astype(np.uint8)).save(file, "JPEG")
    data, box, out = file.getvalue(), Box(17, 20, 9, 21), np.empty(3 * 9 * 21, np.uint8)
    wanted = box.cut(np.asarray(Image.open(file)))
    return (
        jpeg.size(data) == (40, 50)
        and jpeg.part(data, 1, (40, 50), box, out)
        and np.abs(out.reshape(wanted.shape).astype(int) - wanted).max() <= 1
    )
