"""A part of a JPEG file's picture, in a few lines of C++ around libjpeg-turbo, compiled on first use.

What lies beside the part is read over and what lies below it is not read, so that a crop costs less than the picture.
Where there is no compiler or no libjpeg-turbo with its headers, nothing is said: others decode the whole.
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

_FLAGS = ("-std=c++17", "-O2", "-fPIC")
_END = b"\xff\xd9"
_BEHIND = 1024  # bytes, which some cameras write behind a picture's end


class Box(NamedTuple):
    """A rectangle in whole pixels."""

    left: int
    top: int
    width: int
    height: int

    def of(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]


class Jpeg:
    """The compiled functions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._size, self._part = library.jpeg_size, library.jpeg_part
        self._size.argtypes = (ctypes.c_char_p, size, pointer, pointer)
        self._part.argtypes = (ctypes.c_char_p, size, *(number,) * 7, pointer)

    def size(self, data: bytes) -> tuple[int, int] | None:
        """Width and height of a usual picture: YCbCr or grey, not turned by EXIF, and with an end."""
        if data[:2] != b"\xff\xd8" or data.rfind(_END, max(len(data) - _BEHIND, 0)) < 0:
            return None
        width, height = ctypes.c_int(), ctypes.c_int()
        usual = self._size(data, len(data), ctypes.byref(width), ctypes.byref(height))
        return (width.value, height.value) if usual else None

    def part(self, data: bytes, shrink: int, size: tuple[int, int], box: Box, out: npt.NDArray[np.uint8]) -> bool:
        """Write the box of the picture, which is of `size` after it was shrunk, to the beginning of `out`; or fail."""
        if len(out) < 3 * box.width * box.height:
            raise ValueError(f"{len(out)} bytes are too few for {box}")
        return bool(self._part(data, len(data), shrink, *size, *box, out.ctypes.data))


@cache
def load() -> Jpeg | None:
    """The functions, compiled if need be, or None."""
    source = Path(__file__).with_name("jpeg.cpp")
    try:
        return Library(source, "a JPEG decoder", Ways((_FLAGS,), (("-ljpeg",),)), _open).load()[0]
    except NotBuiltError:
        return None


def _open(path: Path) -> Jpeg:
    """A library that loads and decodes."""
    try:
        jpeg = Jpeg(ctypes.CDLL(str(path)))
    except (OSError, AttributeError):
        raise NotBuiltError("the compiled decoder does not load") from None
    if not _right(jpeg):
        raise NotBuiltError("the compiled decoder decodes wrong pixels")
    return jpeg


def _right(jpeg: Jpeg) -> bool:
    """A part of a small picture against PIL's."""
    file = io.BytesIO()
    x, y = np.mgrid[:50, :40]
    Image.fromarray(np.stack([4 * x, 5 * y, x + y], 2).astype(np.uint8)).save(file, "JPEG")
    data, box, out = file.getvalue(), Box(17, 20, 9, 21), np.empty(3 * 9 * 21, np.uint8)
    wanted = box.of(np.asarray(Image.open(file)))
    return (
        jpeg.size(data) == (40, 50)
        and jpeg.part(data, 1, (40, 50), box, out)
        and np.abs(out.reshape(wanted.shape).astype(int) - wanted).max() <= 1
    )
