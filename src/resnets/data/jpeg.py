"""Decode a part of a JPEG, and scale it, with a little C++ around libjpeg-turbo, compiled on first use.

Rows below the part are not read and columns beside it are not computed, so a crop costs less than the whole image.
The Huffman codes of baseline files, most of the work, are read by our own decoder. The pixels are those of libjpeg and
of torch to the bit. Without a compiler or the headers of libjpeg-turbo `load` returns None, and PIL decodes.
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

from resnets.data.resampling import resize_by_torch
from resnets.native_build import Library, NotBuiltError, Ways

_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-ffp-contract=off")  # weights are rounded as torch rounds them
_WAYS = Ways(((*_FLAGS, "-march=native"), _FLAGS), (("-ljpeg",),))
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


class ScaledBox(NamedTuple):
    """A box that is scaled to a square, and mirrored or not."""

    box: Box
    scale: tuple[float, float]  # how many pixels of the box are one of the square, across and down
    mirrored: bool


class Header(NamedTuple):
    """What the beginning of an ordinary file says."""

    size: tuple[int, int]  # width and height
    has_exif: bool  # which may ask to turn it


class Jpeg:
    """The compiled functions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_double
        self._header, self._part, self._square = library.jpeg_header, library.jpeg_part, library.jpeg_square
        self._header.argtypes = (ctypes.c_char_p, size, pointer)
        self._part.argtypes = (ctypes.c_char_p, size, *(number,) * 7, pointer)
        self._square.argtypes = (ctypes.c_char_p, size, *(number,) * 7, real, real, number, number, pointer)

    def header(self, data: bytes) -> Header | None:
        """The header of an ordinary file: YCbCr or grey, not cut off; else None."""
        if data[:2] != b"\xff\xd8" or data.rfind(_END, max(len(data) - _BEHIND, 0)) < 0:
            return None
        found = (ctypes.c_int * 3)()
        if not self._header(data, len(data), found):
            return None
        width, height, has_exif = found
        return Header((width, height), bool(has_exif))

    def part(self, data: bytes, shrink: int, size: tuple[int, int], box: Box, out: npt.NDArray[np.uint8]) -> bool:
        """Decode a box of the image, which has `size` at 1/`shrink`, to the beginning of `out`; False if that fails."""
        if len(out) < 3 * box.width * box.height:
            raise ValueError(f"{len(out)} bytes are too few for {box}")
        return bool(self._part(data, len(data), shrink, *size, *box, out.ctypes.data))

    def square(
        self, data: bytes, shrink: int, size: tuple[int, int], part: ScaledBox, out: npt.NDArray[np.uint8]
    ) -> bool:
        """Decode a box and scale it to the square `out`, as torch does; False if that fails."""
        box, scale, mirrored = part
        side = len(out)
        if out.shape != (side, side, 3) or out.dtype != np.uint8 or not out.flags.c_contiguous or not side:
            raise ValueError(f"the pixels of a square must be contiguous bytes, not {out.dtype} {out.shape}")
        if not (0 < scale[0] * side < box.width + 1 and 0 < scale[1] * side < box.height + 1):
            raise ValueError(f"{side}x{side} pixels of {scale} are more than {box}")
        return bool(self._square(data, len(data), shrink, *size, *box, *scale, side, mirrored, out.ctypes.data))


@cache
def load() -> Jpeg | None:
    """The compiled functions, or None where they cannot be compiled."""
    source = Path(__file__).with_name("jpeg.cpp")
    try:
        return Library(source, "a JPEG decoder", _WAYS, _open).load()[0]
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
    """Compare a part of a small image with PIL's, and its scaling with torch's."""
    file = io.BytesIO()
    x, y = np.mgrid[:50, :40]
    Image.fromarray(np.stack([4 * x, 5 * y, x + y], 2).astype(np.uint8)).save(file, "JPEG")
    data, box, out = file.getvalue(), Box(17, 20, 9, 21), np.empty(3 * 9 * 21, np.uint8)
    wanted, square = box.cut(np.asarray(Image.open(file))), np.empty((7, 7, 3), np.uint8)
    scale = box.width / 7, box.height / 7
    return (
        jpeg.header(data) == Header((40, 50), False)
        and jpeg.part(data, 1, (40, 50), box, out)
        and np.abs(out.reshape(wanted.shape).astype(int) - wanted).max() <= 1
        and jpeg.square(data, 1, (40, 50), ScaledBox(box, scale, False), square)
        and np.array_equal(square, resize_by_torch(out.reshape(wanted.shape), scale, 7))
    )
