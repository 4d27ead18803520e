"""Decode any supported image file to RGB pixels; an invalid file raises `BadImageError` with the reason.

The pixels are upright (EXIF), 8 bits, white where transparent; of an animation, the first frame. The compiled
libjpeg-turbo decoder reads ordinary JPEGs, and only as far as the crop reaches; PIL decodes everything else. A JPEG
that is needed at a smaller size is decoded at 1/2, 1/4 or 1/8. At most two copies of full size exist at a time: what
PIL decoded, and the RGB pixels.
"""

from __future__ import annotations

import io
import itertools
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from resnets.data import jpeg
from resnets.data.budget import room_for
from resnets.data.jpeg import Box, ScaledBox
from resnets.data.resampling import Pixels

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # PIL runs programs for some others, such as EPS
MOST = 1 << 27  # pixels; a small file can claim more than there is memory
_PARTS = {"TIFF": 2, "WEBP": 4}  # MOST is divided by this, because these decoders hold more copies
_STRIP = 1 << 20  # pixels that are converted at a time
_KEPT = 1 << 26  # bytes that a `Buffer` keeps
_STORED: dict[int, Callable[[Pixels], Pixels]] = {
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}  # EXIF orientation: a view of the upright pixels in the order of the file
_ORIENTATION = 0x0112
_PNG_EXIF = {"exif": b"eXIf", "Raw profile type exif": b"Raw profile type exif"}  # PIL's key, and the bytes in the file
_PIL = r"PIL\."
_PIL_IGNORED = ("ignore", None, Warning, re.compile(_PIL), 0)  # its entry in `warnings.filters`


class BadImageError(Exception):
    """Why an image cannot be used. The message is the end of a sentence that starts with the path."""


class Buffer:
    """Memory for pixels that is reused for the next image: fresh memory costs a quarter of the decoding time."""

    def __init__(self) -> None:
        self.bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def get(self, size: int) -> npt.NDArray[np.uint8]:
        if size > _KEPT:
            return np.empty(size, np.uint8)
        if size > len(self.bytes):
            self.bytes = np.empty(size, np.uint8)
        return self.bytes


def _is_animated(image: Image.Image) -> bool:
    """Whether the file has several frames. PIL reads all of them to count them, and may raise anything."""
    try:
        return getattr(image, "n_frames", 1) > 1
    except Exception:
        return True


class Opened:
    """An image whose header was read. `size` is its upright width and height; no pixels are decoded yet."""

    def __init__(self, data: bytes) -> None:
        if not data:
            raise BadImageError("is empty")
        self.data = data
        decoder = jpeg.load()
        usual = decoder.header(data) if decoder else None  # then PIL need not open it
        self.stored = usual.size if usual else self.image.size
        self._require_allowed()
        with _translate_errors():
            self.orientation = self._read_orientation() if usual is None or usual.has_exif else 1
        width, height = self.stored
        self.size = (height, width) if self.orientation >= 5 else self.stored
        self._usual = usual is not None and self.orientation == 1

    def _require_allowed(self) -> None:
        """Refuse an image that would take too much memory to decode."""
        (width, height), most = self.stored, MOST
        if width * height > MOST // max(_PARTS.values()):  # only then the format matters
            most //= _parts(self.image)
        if width * height > most:
            kind = "" if most == MOST else f", the limit for a {_kind(self.image)} file"
            raise BadImageError(f"has {width}x{height} pixels, more than {most:,}{kind}")

    def _read_orientation(self) -> int:
        """Read EXIF. PIL decodes a whole PNG to look for EXIF after the pixels, so search the bytes for it first."""
        image = self.image
        if image.format != "PNG" or any(key in image.info for key in _PNG_EXIF):
            return _orientation(image)
        if not any(mark in self.data for mark in _PNG_EXIF.values()):
            return 1
        del self.image, image  # frees the pixels that PIL decodes here
        with room_for(self.stored):
            return _orientation(Image.open(io.BytesIO(self.data), formats=("PNG",)))

    @cached_property
    def image(self) -> Image.Image:
        with _translate_errors():
            return Image.open(io.BytesIO(self.data), formats=FORMATS)

    @property
    def notes(self) -> tuple[str, ...]:
        """What `pixels` has to convert: greyscale, palette, turned by EXIF, animated ..."""
        image, found = self.image, []
        if image.mode != "RGB":
            found.append({"L": "greyscale", "1": "black and white", "P": "palette"}.get(image.mode, image.mode))
        if self.orientation > 1:
            found.append("turned by EXIF")
        if _is_animated(image):
            found.append("animated")
        return tuple(found)

    def reduced_size(self, least: tuple[float, float]) -> tuple[int, int]:
        """The upright size at which `pixels(least)` decodes: at least `least`, a width and height."""
        return _reduce(self.size, self._shrink(least))

    def pixels(
        self, least: tuple[float, float] | None = None, buffer: Buffer | None = None, box: Box | None = None
    ) -> Pixels:
        """The upright RGB pixels; with `least` at `reduced_size(least)`, with `box` only that part of them.

        With `buffer` they may lie in it, until it is used again.
        """
        shrink = self._shrink(least) if least else 1
        with _translate_errors():
            if self._usual and (part := self._decode_part(shrink, buffer or Buffer(), box)) is not None:
                return part
            array = self._decode_by_pil(shrink)
            return array if box is None else box.cut(array)

    def square(self, least: tuple[float, float], part: ScaledBox, out: Pixels) -> bool:
        """Decode a box of `pixels(least)`, scaled to the square `out`; False if only `pixels` can decode this file."""
        decoder, shrink = jpeg.load(), self._shrink(least)
        if decoder is None or not self._usual:
            return False
        return decoder.square(self.data, shrink, _reduce(self.size, shrink), part, out)

    def _decode_by_pil(self, shrink: int) -> Pixels:
        image = self.image
        del self.image  # frees its pixels once they are converted
        if shrink > 1:
            image.draft(None, (self.stored[0] // shrink, self.stored[1] // shrink))
        image.load()
        return _assemble((image.height, image.width, 3), self.orientation, _strips(image))

    def _shrink(self, least: tuple[float, float]) -> int:
        """The factor by which to decode smaller: 1, 2, 4 or 8, as PIL's `draft` chooses. Only JPEGs can."""
        if not self._usual and not isinstance(self.image, JpegImageFile):
            return 1
        scale = min(self.size[0] // max(int(least[0]), 1), self.size[1] // max(int(least[1]), 1))
        return 8 if scale >= 8 else 4 if scale >= 4 else 2 if scale >= 2 else 1

    def _decode_part(self, shrink: int, buffer: Buffer, box: Box | None) -> Pixels | None:
        """Decode the box with libjpeg-turbo, which stops at its last row; None if that fails."""
        decoder, size = jpeg.load(), _reduce(self.size, shrink)
        box = box or Box(0, 0, *size)
        count = 3 * box.width * box.height
        out = buffer.get(count)
        if decoder is None or not decoder.part(self.data, shrink, size, box, out):
            return None
        return out[:count].reshape(box.height, box.width, 3)


def read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as error:
        raise BadImageError(f"cannot be read ({error.strerror})") from None


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn whatever a decoder raises into `BadImageError`, and suppress PIL's warnings."""
    _ignore_pil_warnings()
    try:
        yield
    except (BadImageError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise BadImageError(f"cannot be decoded (it is none of {', '.join(FORMATS)})") from None
    except Exception as error:  # a broken file can raise anything
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise BadImageError(f"cannot be decoded ({reason})") from error


def _ignore_pil_warnings() -> None:
    """Add a filter for PIL's warnings, and leave it in place.

    `catch_warnings` is not thread-safe: filters belong to the process, and of two threads that decode at the same time
    one would restore what the other has set. Code that restores older filters may drop ours, so this checks each time.
    """
    if _PIL_IGNORED not in warnings.filters:
        warnings.filterwarnings("ignore", module=_PIL)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, or 1 if it is missing or invalid. PIL itself turns TIFF files."""
    if image.format == "TIFF" or ("exif" not in image.info and image.format not in ("WEBP", "PNG")):
        return 1
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except (SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error, OSError):
        return 1
    return found if found in _STORED else 1


def _reduce(size: tuple[int, int], shrink: int) -> tuple[int, int]:
    """Divide a size, rounding up as libjpeg does."""
    return -(-size[0] // shrink), -(-size[1] // shrink)


def _parts(image: Image.Image) -> int:
    """By what MOST is divided for this file. The decoder of a progressive JPEG holds all its coefficients."""
    return _PARTS.get(str(image.format), 2 if image.info.get("progressive") else 1)


def _kind(image: Image.Image) -> str:
    return f"progressive {image.format}" if image.info.get("progressive") else str(image.format)


def _assemble(shape: tuple[int, ...], orientation: int, strips: Iterable[Pixels]) -> Pixels:
    """Assemble strips (from top to bottom) of an image of that shape, turned as EXIF says, without a further copy."""
    strips = iter(strips)
    first = next(strips)
    if first.shape == shape and orientation == 1:
        return first
    out = np.empty((shape[1], shape[0], 3) if orientation >= 5 else shape, np.uint8)
    stored, top = _STORED[orientation](out) if orientation > 1 else out, 0
    for strip in itertools.chain([first], strips):
        stored[top : top + len(strip)] = strip
        top += len(strip)
    return out


def _strips(image: Image.Image) -> Iterator[Pixels]:
    """The RGB pixels of a loaded image from top to bottom, some rows at a time."""
    lines = max(1, _STRIP // image.width)
    if lines >= image.height:
        yield np.asarray(_to_rgb(image))
        return
    for top in range(0, image.height, lines):
        yield np.asarray(_to_rgb(image.crop((0, top, image.width, min(top + lines, image.height)))))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):  # 16 bits: keep the upper eight
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise BadImageError("has more than 16 bits a pixel")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise BadImageError("has floating-point pixels, whose range is unknown")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return image.convert("RGB")
