"""The papers' ways of testing: which views of a picture a network sees.

`Crop` is one centre crop (224 from a shorter side of 256; 320 from 320), `TenCrop` that crop and the four corners,
each also mirrored, `MultiScale` the whole picture at several sizes. The nets are fully convolutional, and what they
pool at the end is the mean of the scores at every place, so a view may have any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, ImageOps

from resnets.errors import UserError

PAPER_SCALES = (224, 256, 384, 480, 640)


@dataclass(frozen=True)
class Crop:
    """The centre, `side` pixels wide and high, of the picture with its shorter side at `shorter`."""

    side: int
    shorter: int

    def __post_init__(self) -> None:
        if not 0 < self.side <= self.shorter:
            raise UserError(f"a crop of {self.side} does not fit into a shorter side of {self.shorter}.")

    def views(self, picture: Image.Image) -> Iterator[Image.Image]:
        yield centre(resized(picture, self.shorter), self.side)

    def __str__(self) -> str:
        return f"crop {self.side} of {self.shorter}"


@dataclass(frozen=True)
class TenCrop(Crop):
    """The centre and the four corners, and the mirror images of the five."""

    def views(self, picture: Image.Image) -> Iterator[Image.Image]:
        whole = resized(picture, self.shorter)
        right, below = whole.width - self.side, whole.height - self.side
        corners = [cut(whole, x, y, self.side) for y in (0, below) for x in (0, right)]
        for view in (centre(whole, self.side), *corners):
            yield view
            yield ImageOps.mirror(view)

    def __str__(self) -> str:
        return f"ten crops of {self.side} of {self.shorter}"


@dataclass(frozen=True)
class MultiScale:
    """The whole picture with its shorter side at each of `sides`."""

    sides: tuple[int, ...] = PAPER_SCALES

    def __post_init__(self) -> None:
        if not self.sides or min(self.sides) < 1:
            raise UserError(f"scales are sides of at least one pixel, not {self.sides}.")

    def views(self, picture: Image.Image) -> Iterator[Image.Image]:
        for side in self.sides:
            yield resized(picture, side)

    def __str__(self) -> str:
        return f"whole pictures at {', '.join(map(str, self.sides))}"


Views = Crop | MultiScale


def parse_crop(text: str) -> Crop:
    """`224@256`, or `224` alone for a crop of the whole shorter side."""
    if not (found := re.fullmatch(r"([0-9]{1,5})(?:@([0-9]{1,5}))?", text)):
        raise UserError(f"crop {text!r}: write the crop and the shorter side that it is taken from, as in 224@256.")
    return Crop(int(found[1]), int(found[2] or found[1]))


def resized(picture: Image.Image, shorter: int) -> Image.Image:
    """The picture with its shorter side at `shorter`, by a bilinear filter as wide as a shrinking asks for."""
    width, height = picture.size
    if min(width, height) == shorter:
        return picture
    scale = shorter / min(width, height)
    size = (
        (shorter, max(shorter, int(height * scale))) if width <= height else (max(shorter, int(width * scale)), shorter)
    )
    return picture.resize(size, Image.Resampling.BILINEAR)


def centre(picture: Image.Image, side: int) -> Image.Image:
    return cut(picture, round((picture.width - side) / 2), round((picture.height - side) / 2), side)


def cut(picture: Image.Image, x: int, y: int, side: int) -> Image.Image:
    return picture.crop((x, y, x + side, y + side))
