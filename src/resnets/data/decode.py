"""From a file to RGB pixels, whatever is in it; what is no picture is told in words and does no harm.

Of JPEG files only as much is decoded as the wanted size needs: halves, quarters and eighths come straight out of the
frequencies. Turned as EXIF says, 16 bits to 8, every mode to RGB, white where it is transparent, of animations
the first picture. Usual JPEGs are decoded by libjpeg-turbo, only as far as the wanted part goes, or with the extra
`fast-jpeg` as a whole by simplejpeg, to the same pixels as by PIL. Whatever the mode, there are never more than two
copies of full size: what PIL has decoded, and the RGB pixels.
"""

from __future__ import annotations

import io
import itertools
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from resnets.data import jpeg
from resnets.data.budget import room_for
from resnets.data.jpeg import Box

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # others, as EPS, may run programs
MOST = 1 << 27  # pixels; a file of some bytes can claim more than there is memory
_PARTS = {"TIFF": 2, "WEBP": 4}  # of MOST one part is allowed, because the decoders hold more copies
_STRIP = 1 << 20  # pixels that are converted at a time
_KEPT = 1 << 26  # bytes that a `Room` keeps
_STORED: dict[int, Callable[[Pixels], Pixels]] = {
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}  # by EXIF's word for the orientation: the upright pixels seen as the file has them
_ORIENTATION = 0x0112
_PNG_EXIF = {"exif": b"eXIf", "Raw profile type exif": b"Raw profile type exif"}  # as PIL and as the file name it
_PIL = r"PIL\."
_PIL_IGNORED = ("ignore", None, Warning, re.compile(_PIL), 0)  # as it stands among the filters of `warnings`


class BadImageError(Exception):
    """What is wrong with an image, as the end of a sentence that begins with its name."""


class Room:
    """Memory for pixels that are used at once and then no more: fresh memory costs a quarter of the decoding."""

    def __init__(self) -> None:
        self.bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def of(self, size: int) -> npt.NDArray[np.uint8]:
        if size > _KEPT:
            return np.empty(size, np.uint8)
        if size > len(self.bytes):
            self.bytes = np.empty(size, np.uint8)
        return self.bytes


def _is_animated(image: Image.Image) -> bool:
    """Whether pictures follow the first; PIL reads them all to count them, and fails in many ways where one is bad."""
    try:
        return getattr(image, "n_frames", 1) > 1
    except Exception:
        return True


class Opened:
    """An image whose header was read: its upright size is known, its pixels are not decoded yet."""

    def __init__(self, data: bytes) -> None:
        if not data:
            raise BadImageError("is empty")
        self.data = data
        decoder = jpeg.load()
        usual = decoder.size(data) if decoder else None  # PIL need not open it
        self.stored = usual or self.image.size
        self._require_allowed()
        with _told():
            self.orientation = 1 if usual else self._read_orientation()
        self.size = self._upright(self.stored)  # width, height
        self._usual = usual is not None

    def _require_allowed(self) -> None:
        """Refuse a picture whose decoding would take more memory than anybody expects."""
        (width, height), most = self.stored, MOST
        if width * height > MOST // max(_PARTS.values()):  # only then the file need be looked at once more
            most //= _parts(self.image)
        if width * height > most:
            kind = "" if most == MOST else f", as many as a {_kind(self.image)} file may have here"
            raise BadImageError(f"has {width}x{height} pixels, more than {most:,}{kind}")

    def _read_orientation(self) -> int:
        """EXIF's. PIL decodes a PNG as a whole to see whether EXIF follows the pixels, which it seldom does."""
        image = self.image
        if image.format != "PNG" or any(key in image.info for key in _PNG_EXIF):
            return _orientation(image)
        if not any(mark in self.data for mark in _PNG_EXIF.values()):
            return 1
        del self.image, image  # with the pixels that are decoded now
        with room_for(self.stored):
            return _orientation(Image.open(io.BytesIO(self.data), formats=("PNG",)))

    @cached_property
    def image(self) -> Image.Image:
        with _told():
            return Image.open(io.BytesIO(self.data), formats=FORMATS)

    @property
    def notes(self) -> tuple[str, ...]:
        """What had to be done to it, in a word or two each."""
        image, found = self.image, []
        if image.mode != "RGB":
            found.append({"L": "greyscale", "1": "black and white", "P": "palette"}.get(image.mode, image.mode))
        if self.orientation > 1:
            found.append("turned by EXIF")
        if _is_animated(image):
            found.append("animated")
        return tuple(found)

    def smaller(self, least: tuple[float, float]) -> tuple[int, int]:
        """The upright size of a copy that is perhaps smaller, but not than `least`, a width and height."""
        return _shrunk(self.size, self._shrink(least))

    def pixels(
        self, least: tuple[float, float] | None = None, room: Room | None = None, box: Box | None = None
    ) -> Pixels:
        """The upright picture in RGB; with `least`, the smaller copy; with `box`, only that part of it.

        With `room` it may lie there, until that is used again.
        """
        shrink, room = self._shrink(least) if least else 1, room or Room()
        with _told():
            if self._usual and (part := self._part(shrink, room, box)) is not None:
                return part
            array = self._fast(shrink, room)
            array = self._by_pil(shrink) if array is None else _upright(array.shape, self.orientation, [array])
            return array if box is None else box.of(array)

    def _by_pil(self, shrink: int) -> Pixels:
        image = self.image
        del self.image  # with its pixels, which nobody needs when they are converted
        if shrink > 1:
            image.draft(None, (self.stored[0] // shrink, self.stored[1] // shrink))
        image.load()
        return _upright((image.height, image.width, 3), self.orientation, _strips(image))

    def _upright(self, size: tuple[int, int]) -> tuple[int, int]:
        return (size[1], size[0]) if self.orientation >= 5 else size

    def _shrink(self, least: tuple[float, float]) -> int:
        """By how much it can be decoded smaller: 1, 2, 4 or 8, as PIL's `draft` chooses; JPEGs alone can."""
        if not self._usual and not isinstance(self.image, JpegImageFile):
            return 1
        scale = min(length // max(int(enough), 1) for length, enough in zip(self.size, least, strict=True))
        return next((s for s in (8, 4, 2) if scale >= s), 1)

    def _part(self, shrink: int, room: Room, box: Box | None) -> Pixels | None:
        """By a decoder that stops where the part does, if it can."""
        decoder, size = jpeg.load(), _shrunk(self.size, shrink)
        box = box or Box(0, 0, *size)
        count = 3 * box.width * box.height
        out = room.of(count)
        if decoder is None or not decoder.part(self.data, shrink, size, box, out):
            return None
        return out[:count].reshape(box.height, box.width, 3)

    def _fast(self, shrink: int, room: Room) -> Pixels | None:
        """The whole by simplejpeg, if there is one and it is a JPEG of a kind that it knows."""
        if not _simplejpeg() or self.image.format != "JPEG" or self.image.mode not in ("RGB", "L"):
            return None
        width, height = _shrunk(self.stored, shrink)
        try:
            return _simplejpeg().decode_jpeg(
                self.data, "RGB", False, False, min_height=height, min_width=width, buffer=room.of(3 * height * width)
            )
        except ValueError:  # of every oddity, also those that PIL takes as they come
            return None


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadImageError(f"cannot be read ({error.strerror})") from None


def decode(data: bytes, least: tuple[float, float] | None = None) -> Pixels:
    """The upright RGB pixels of an image file's bytes."""
    return Opened(data).pixels(least)


@contextmanager
def _told() -> Iterator[None]:
    """Whatever a decoder raises becomes `BadImageError`; its warnings are for the eyes of its makers."""
    _hush()
    try:
        yield
    except (BadImageError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise BadImageError(f"cannot be decoded (it is none of {', '.join(FORMATS)})") from None
    except Exception as error:  # of a broken file, in any way
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise BadImageError(f"cannot be decoded ({said})") from error


def _hush() -> None:
    """Ignore PIL's warnings, and no others, from now on.

    `catch_warnings` is no help where pictures are decoded in threads: filters belong to the process, and of two threads
    that overlap one would put back what the other had set. A filter that stays has nothing to put back; it is set
    again where somebody else has put back older ones.
    """
    if _PIL_IGNORED not in warnings.filters:
        warnings.filterwarnings("ignore", module=_PIL)


def _orientation(image: Image.Image) -> int:
    """EXIF's, or 1 where there is none or it makes no sense; TIFF files are turned by PIL itself."""
    if image.format == "TIFF" or ("exif" not in image.info and image.format not in ("WEBP", "PNG")):
        return 1
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except (SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error, OSError):
        return 1
    return found if found in _STORED else 1


def _shrunk(size: tuple[int, int], shrink: int) -> tuple[int, int]:
    """As libjpeg rounds: up."""
    return -(-size[0] // shrink), -(-size[1] // shrink)


def _parts(image: Image.Image) -> int:
    """Into how many parts MOST is divided for such a file. A progressive JPEG is held as a whole in frequencies."""
    return _PARTS.get(str(image.format), 2 if image.info.get("progressive") else 1)


def _kind(image: Image.Image) -> str:
    return f"progressive {image.format}" if image.info.get("progressive") else str(image.format)


def _upright(shape: tuple[int, ...], orientation: int, strips: Iterable[Pixels]) -> Pixels:
    """The picture of strips from above to below in that shape, turned as EXIF says without a further copy."""
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
    """The RGB pixels of a loaded picture from above to below, some lines at a time."""
    lines = max(1, _STRIP // image.width)
    if lines >= image.height:
        yield np.asarray(_rgb(image))
        return
    for top in range(0, image.height, lines):
        yield np.asarray(_rgb(image.crop((0, top, image.width, min(top + lines, image.height)))))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):  # 16 bits, of which the upper eight count
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise BadImageError("has more than 16 bits a pixel")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise BadImageError("has floating-point pixels, whose range nobody knows")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return image.convert("RGB")


@cache
def _simplejpeg() -> Any:
    """The extra, or None."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg
