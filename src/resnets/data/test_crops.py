"""The papers' test protocols: which views of an image a network sees.

`Crop` is one centre crop (224 from a shorter side of 256; 320 from 320), `TenCrop` that crop and the four corners,
each also mirrored, `MultiScale` the whole image at several sizes. The networks are fully convolutional and average
over all positions at the end, so a view may have any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, ImageOps

from resnets.data.decode import BadImageError
from resnets.errors import UserError
from resnets.metadata import INTERPOLATIONS, require_sides

PAPER_SCALES = (224, 256, 384, 480, 640)
LARGEST_VIEW = 1 << 22  # pixels of a whole image that a network sees at once
LARGEST_WHOLE = 1 << 24  # pixels of a scaled image from which crops are cut


@dataclass(frozen=True)
class Crop:
    """The centre, `side` pixels wide and high, of the image scaled to a shorter side of `shorter`."""

    side: int
    shorter: int
    interpolation: str = INTERPOLATIONS[0]

    def __post_init__(self) -> None:
        require_sides(self.side, self.shorter)

    def views(self, picture: Image.Image) -> Iterator[Image.Image]:
        yield self.scale(picture).centre(self.side)

    def scale(self, picture: Image.Image) -> Scaled:
        return Scaled(picture, self.shorter, self.interpolation)

    def __str__(self) -> str:
        return f"crop {self.side} of {self.shorter}{_name_filter(self.interpolation)}"


@dataclass(frozen=True)
class TenCrop(Crop):
    """The centre and the four corners, and the mirror images of the five."""

    def views(self, picture: Image.Image) -> Iterator[Image.Image]:
        whole = self.scale(picture)
        right, below = whole.width - self.side, whole.height - self.side
        corners = [whole.cut(x, y, self.side) for y in (0, below) for x in (0, right)]
        for view in (whole.centre(self.side), *corners):
            yield view
            yield ImageOps.mirror(view)

    def __str__(self) -> str:
        return f"ten crops of {self.side} of {self.shorter}{_name_filter(self.interpolation)}"


@dataclass(frozen=True)
class MultiScale:
    """The whole image, scaled to each shorter side in `sides`."""

    sides: tuple[int, ...] = PAPER_SCALES
    interpolation: str = INTERPOLATIONS[0]

    def __post_init__(self) -> None:
        if not self.sides or min(self.sides) < 1:
            raise UserError(f"each scale must be at least one pixel, not {self.sides}.")
        require_sides(1, max(self.sides))

    def views(self, picture: Image.Image) -> Iterator[Image.Image]:
        for side in self.sides:
            require_short(picture, side, LARGEST_VIEW)
            yield resize_shorter(picture, side, self.interpolation)

    def __str__(self) -> str:
        return f"whole pictures at {', '.join(map(str, self.sides))}{_name_filter(self.interpolation)}"


Views = Crop | MultiScale


def _name_filter(interpolation: str) -> str:
    return "" if interpolation == INTERPOLATIONS[0] else f", {interpolation}"


def scaled_size(size: tuple[int, int], shorter: int) -> tuple[int, int]:
    """The width and height of an image of `size` after scaling its shorter side to `shorter`."""
    width, height = size
    scale = shorter / min(size)
    if width <= height:
        return shorter, max(shorter, int(height * scale))
    return max(shorter, int(width * scale)), shorter


def require_short(picture: Image.Image, shorter: int, most: int) -> None:
    """Refuse an image that would have more than `most` pixels after scaling, because it is very long."""
    width, height = scaled_size(picture.size, shorter)
    if width * height > most:
        raise BadImageError(
            f"has {picture.width}x{picture.height} pixels and is too long to be used whole: scaled to a shorter side "
            f"of {shorter} it would have more than {most:,}"
        )


def resize_shorter(picture: Image.Image, shorter: int, interpolation: str = INTERPOLATIONS[0]) -> Image.Image:
    """Scale the shorter side to `shorter`, with PIL's antialiased filter of that name."""
    if min(picture.size) == shorter:
        return picture
    return picture.resize(scaled_size(picture.size, shorter), Image.Resampling[interpolation.upper()])


class Scaled:
    """An image scaled to a shorter side of `shorter`, to cut squares from.

    The whole image is scaled; only the squares are where a very long image would take much memory.
    """

    def __init__(self, picture: Image.Image, shorter: int, interpolation: str) -> None:
        self.width, self.height = scaled_size(picture.size, shorter)
        self._long = self.width * self.height > LARGEST_WHOLE
        self._interpolation = interpolation
        self._picture = picture if self._long else resize_shorter(picture, shorter, interpolation)

    def centre(self, side: int) -> Image.Image:
        return self.cut(round((self.width - side) / 2), round((self.height - side) / 2), side)

    def cut(self, x: int, y: int, side: int) -> Image.Image:
        if not self._long:
            return self._picture.crop((x, y, x + side, y + side))
        across, down = self._picture.width / self.width, self._picture.height / self.height
        right, below = min((x + side) * across, self._picture.width), min((y + side) * down, self._picture.height)
        box = (x * across, y * down, right, below)
        return self._picture.resize((side, side), Image.Resampling[self._interpolation.upper()], box)
