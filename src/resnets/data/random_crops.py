"""The part of an image that a network sees: cropped, scaled to a square, mirrored or not.

Where the part lies is a pure function of seed, epoch and index. It is cropped before it is scaled, so that only the
pixels that are needed are computed; the result is the same as scaling the whole image and then cropping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from resnets.counter_rng import alternate, draws, uniform
from resnets.data.budget import room_for
from resnets.data.decode import Buffer, Opened
from resnets.data.jpeg import Box, ScaledBox
from resnets.data.resampling import Pixels, mirror, resize_by_pil, resize_by_torch
from resnets.data.test_crops import scaled_size
from resnets.errors import UserError, one_of

KINDS = ("scale", "aspect", "centre")
AREA = (0.08, 1.0)  # of the image, for `aspect`
RATIO = (3 / 4, 4 / 3)  # width over height
_TRIES = 10
_NUMBERS = 4 * _TRIES + 2  # drawn for an image: four a try, or scale and place; mirrored; one to spare

Numbers = npt.NDArray[np.float64]


class Part(NamedTuple):
    """A rectangle of an image, in its pixels."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class View:
    """How a part is chosen.

    `scale`: draw the shorter side from `shorter` and crop a square of `side` anywhere (the papers' for ImageNet).
    `aspect`: crop 8 to 100 % of the area, with a ratio of 3/4 to 4/3, anywhere. `centre`: scale the shorter side to
    `shorter` and crop the middle.
    """

    kind: str
    side: int
    shorter: tuple[int, int]
    flip: str = "none"  # random, alternate, none

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise one_of("view", self.kind, KINDS)
        if self.kind != "aspect" and not self.side <= self.shorter[0] <= self.shorter[1]:
            low, high = self.shorter
            raise UserError(f"images of shorter side {low} to {high} have no crop of {self.side}x{self.side}.")

    def part(self, size: tuple[int, int], u: Numbers) -> Part:
        """The part of an image of this width and height, from numbers between 0 and 1."""
        if self.kind == "aspect":
            return _draw_aspect(size, u)
        if self.kind == "centre":
            return _centre(size, self.shorter[0], self.side)
        low, high = self.shorter
        edge = self.side * min(size) / (low + int(u[0] * (high - low + 1)))
        return Part(u[1] * (size[0] - edge), u[2] * (size[1] - edge), edge, edge)

    def __call__(self, data: bytes, u: Numbers, mirrored: bool = False) -> Pixels:
        """Decode the part of an image file's bytes, to (side, side, 3)."""
        out = np.empty((self.side, self.side, 3), np.uint8)
        self.decode(data, u, mirrored, out, Buffer())
        return out

    def decode(self, data: bytes, u: Numbers, mirrored: bool, out: Pixels, buffer: Buffer) -> None:
        """Decode the part into `out`."""
        opened = Opened(data)
        with room_for(opened.size):
            part = self.part(opened.size, u)
            if self.kind == "centre":  # exact, as it is for testing
                pixels = resize_by_pil(opened.pixels(buffer=buffer), _corners(part, opened.size), self.side)
                out[:] = mirror(pixels) if mirrored else pixels
            else:
                self._decode_fast(opened, part, mirrored, out, buffer)

    def _decode_fast(self, opened: Opened, part: Part, mirrored: bool, out: Pixels, buffer: Buffer) -> None:
        shrink = min(part.width, part.height) / self.side
        least = opened.size[0] / shrink, opened.size[1] / shrink
        left, top, width, height = _reduce(part, opened.size, opened.reduced_size(least))
        box = Box(int(left), int(top), math.ceil(width), math.ceil(height))
        scale = 1 / (self.side / width), 1 / (self.side / height)  # rounded as ever, so that runs keep their bytes
        if not opened.square(least, ScaledBox(box, scale, mirrored), out):
            pixels = resize_by_torch(opened.pixels(least, buffer, box), scale, self.side)
            out[:] = mirror(pixels) if mirrored else pixels

    def numbers(self, seed: int, epoch: int, index: npt.NDArray[np.int64]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """For each image the numbers that choose its part, and whether it is mirrored."""
        u = uniform(draws("view", seed, epoch, index[:, None] * _NUMBERS + np.arange(_NUMBERS)))
        if self.flip == "alternate":
            return u, alternate(seed, epoch, index)
        return u, (u[:, -1] < 0.5) & (self.flip == "random")


def _centre(size: tuple[int, int], shorter: int, side: int) -> Part:
    """The middle of the scaled image, whose sides and margins are whole numbers."""
    (left, width), (top, height) = (
        (round((whole - side) / 2) * length / whole, side * length / whole)
        for whole, length in zip(scaled_size(size, shorter), size, strict=True)
    )
    return Part(left, top, width, height)


def _draw_aspect(size: tuple[int, int], u: Numbers) -> Part:
    """A part that fits, in whole pixels; after ten tries, the largest in the middle."""
    width, height = size
    low, high = (math.log(r) for r in RATIO)
    for area, ratio, x, y in u[: 4 * _TRIES].reshape(_TRIES, 4):
        pixels = width * height * (AREA[0] + area * (AREA[1] - AREA[0]))
        shape = math.exp(low + ratio * (high - low))
        w, h = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if 0 < w <= width and 0 < h <= height:
            return Part(int(x * (width - w + 1)), int(y * (height - h + 1)), w, h)
    w = min(width, max(round(height * RATIO[1]), 1))
    h = min(height, max(round(width / RATIO[0]), 1))
    return Part((width - w) // 2, (height - h) // 2, w, h)


def _corners(part: Part, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom, inside the image."""
    left, top, width, height = part
    return left, top, min(left + width, size[0]), min(top + height, size[1])


def _reduce(part: Part, size: tuple[int, int], smaller: tuple[int, int]) -> Part:
    """The same part in a smaller copy of the image; it starts at the nearest whole pixel."""
    by = smaller[0] / size[0], smaller[1] / size[1]
    width, height = part.width * by[0], part.height * by[1]
    left = max(min(round(part.left * by[0]), math.floor(smaller[0] - width)), 0)
    top = max(min(round(part.top * by[1]), math.floor(smaller[1] - height)), 0)
    return Part(left, top, width, height)
