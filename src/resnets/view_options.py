"""The options for the views of an image in testing. No torch or PIL here."""

from __future__ import annotations

from dataclasses import dataclass

from resnets.errors import UserError
from resnets.metadata import parse_sides
from resnets.options import Options, option, parse_numbers

AVERAGES = ("softmax", "logits")


@dataclass(frozen=True)
class ViewOptions(Options):
    """Which views of an image a network sees, and how to average over them; by default as its file says."""

    crop: str | None = option(
        None, "centre crop and the shorter side that it is taken from: 224@256, 320@320", group="test views",
        metavar="N@M",
    )  # fmt: skip
    ten_crop: bool = option(False, "average over centre and corners, each also mirrored", group="test views")
    multi_scale: tuple[int, ...] | None = option(
        None, "average over whole images with these shorter sides: 224,256,384,480,640", group="test views",
        metavar="N,N", parse=parse_numbers,
    )  # fmt: skip
    average: str = option("softmax", "average of softmax or of logits", group="test views", choices=AVERAGES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multi_scale and (self.crop or self.ten_crop):
            raise UserError("--multi-scale uses whole images; leave out --crop and --ten-crop.")
        if self.crop:
            parse_sides(self.crop)

    @property
    def has_views(self) -> bool:
        """Whether the options override the views in the file."""
        return bool(self.crop or self.ten_crop or self.multi_scale)
