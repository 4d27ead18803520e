"""What a network sees of an image: a part of it, scaled to one side, mirrored or not.

A part lies where numbers say that are a pure function of seed, epoch and index. It is cut out before it is scaled,
so that no pixel is computed that nobody sees; the outcome is that of scaling the whole image and cropping then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from resnets.counter_rng import draws, uniform
from resnets.data.budget import room_for
from resnets.data.decode import Opened, Pixels, Room
from resnets.data.jpeg import Box
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

    `scale`: the shorter side is drawn from `shorter` and a square of `side` is cropped anywhere (the papers' for
    ImageNet). `aspect`: a part of 8 to 100 % of the area and of ratio 3/4 to 4/3, anywhere. `centre`: the shorter
    side becomes `shorter` and the middle is cropped.
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
        """Of an image of this width and height, by numbers from 0 to 1."""
        if self.kind == "aspect":
            return _aspect(size, u)
        if self.kind == "centre":
            return _centre(size, self.shorter[0], self.side)
        low, high = self.shorter
        edge = self.side * min(size) / (low + int(u[0] * (high - low + 1)))
        return Part(u[1] * (size[0] - edge), u[2] * (size[1] - edge), edge, edge)

    def __call__(self, data: bytes, u: Numbers, mirrored: bool = False, room: Room | None = None) -> Pixels:
        """What is seen of an image file's bytes, (side, side, 3); `room` is for the decoder."""
        opened = Opened(data)
        with room_for(opened.size):
            seen = self._seen(opened, self.part(opened.size, u), room)
        return _mirrored(seen) if mirrored else seen

    def _seen(self, opened: Opened, part: Part, room: Room | None) -> Pixels:
        if self.kind == "centre":  # testing is exact
            return _exactly(opened.pixels(room=room), part, self.side)
        shrink = min(part.width, part.height) / self.side
        least = opened.size[0] / shrink, opened.size[1] / shrink
        within = _within(opened.smaller(least), opened.size, part)
        return _quickly(opened.pixels(least, room, _box(within)), within, self.side)

    def numbers(self, seed: int, epoch: int, index: npt.NDArray[np.int64]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """For each image the numbers that choose its part, and whether it is mirrored."""
        at = index[:, None] * _NUMBERS + np.arange(_NUMBERS)
        u = uniform(draws("view", seed, epoch, at))
        if self.flip == "alternate":
            return u, (draws("phase", seed, 0, index) + np.uint64(epoch)) & np.uint64(1) != 0
        return u, (u[:, -1] < 0.5) & (self.flip == "random")


def _centre(size: tuple[int, int], shorter: int, side: int) -> Part:
    """The middle of the scaled image, whose sides and margins are whole numbers."""
    scale = shorter / min(size)
    scaled = [shorter if length == min(size) else max(shorter, int(length * scale)) for length in size]
    (left, width), (top, height) = (
        (round((whole - side) / 2) * length / whole, side * length / whole)
        for whole, length in zip(scaled, size, strict=True)
    )
    return Part(left, top, width, height)


def _aspect(size: tuple[int, int], u: Numbers) -> Part:
    """A part that fits, in whole pixels; after ten that do not, the largest in the middle."""
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


def _exactly(pixels: Pixels, part: Part, side: int) -> Pixels:
    """As PIL scales: bilinear, wider where it shrinks, over every pixel that counts."""
    left, top, width, height = part
    box = (left, top, min(left + width, pixels.shape[1]), min(top + height, pixels.shape[0]))
    return np.array(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR, box))


def _mirrored(pixels: Pixels) -> Pixels:
    """By torch, which is ten times as fast as a copy of numpy's backward view."""
    return torch.from_numpy(pixels).permute(2, 0, 1).flip(2).permute(1, 2, 0).numpy()


def _within(smaller: tuple[int, int], size: tuple[int, int], part: Part) -> Part:
    """The part of an image of that size in a smaller copy; it begins at the nearest whole pixel."""
    by = smaller[0] / size[0], smaller[1] / size[1]
    width, height = part.width * by[0], part.height * by[1]
    left = max(min(round(part.left * by[0]), math.floor(smaller[0] - width)), 0)
    top = max(min(round(part.top * by[1]), math.floor(smaller[1] - height)), 0)
    return Part(left, top, width, height)


def _box(part: Part) -> Box:
    """All its pixels, also the last that counts in part."""
    return Box(int(part.left), int(part.top), math.ceil(part.width), math.ceil(part.height))


def _quickly(pixels: Pixels, part: Part, side: int) -> Pixels:
    """The pixels of a part scaled: the same filter from torch, several times as fast."""
    seen = np.empty((1, side, side, 3), np.uint8)  # told where to, torch leaves the channels of a pixel side by side
    cut = np.require(pixels, requirements=("C", "W"))[None]
    x, out = (torch.from_numpy(pixels).permute(0, 3, 1, 2) for pixels in (cut, seen))
    by = side / part.height, side / part.width
    torch.ops.aten._upsample_bilinear2d_aa.out(x, (side, side), False, *by, out=out)
    return seen[0]
