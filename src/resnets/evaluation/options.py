"""The options of `evaluate` and `predict`: no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from resnets.errors import UserError
from resnets.metadata import parse_sides
from resnets.options import DEVICE, Options, option, parse_numbers

AVERAGES = ("softmax", "logits")


@dataclass(frozen=True)
class ViewOptions(Options):
    """Which views of a picture a network sees, and how its answers are averaged; by default as its file says."""

    crop: str | None = option(
        None, "centre crop and the shorter side that it is taken from: 224@256, 320@320", group="test views",
        metavar="N@M",
    )  # fmt: skip
    ten_crop: bool = option(False, "average over centre and corners, each also mirrored", group="test views")
    multi_scale: tuple[int, ...] | None = option(
        None, "average over whole pictures with these shorter sides: 224,256,384,480,640", group="test views",
        metavar="N,N", parse=parse_numbers,
    )  # fmt: skip
    average: str = option("softmax", "average of softmax or of logits", group="test views", choices=AVERAGES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multi_scale and (self.crop or self.ten_crop):
            raise UserError("--multi-scale tests whole pictures; leave out --crop and --ten-crop.")
        if self.crop:
            parse_sides(self.crop)

    @property
    def has_views(self) -> bool:
        """Whether other views than the file's were asked for."""
        return bool(self.crop or self.ten_crop or self.multi_scale)


ENGINE = "plain, frozen, onnxruntime or openvino (auto: frozen on a CPU, else plain)"


@dataclass(frozen=True)
class EvaluateOptions(ViewOptions):
    """How `evaluate` measures an error."""

    network: str | None = option(
        None, "network in another library's file, where its tensors leave a doubt: resnet20", metavar="NAME"
    )
    source: str = option("auto", "library whose weights the file must hold", metavar="LIBRARY")
    normalize: str | None = option(
        None, "statistics of the data instead of the file's: channel or pixel", choices=("channel", "pixel"),
        metavar="HOW",
    )  # fmt: skip
    precise_bn: int = option(0, "compute BN's statistics anew from N training images", metavar="N", least=0, show=False)
    bad_images: str = option("error", "images that cannot be decoded: error, or skip", metavar="POLICY")
    data_dir: str | Path | None = option(None, "folder to look for the data in", metavar="DIR", aliases={"dir": "{}"})
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", ENGINE, show=False)


@dataclass(frozen=True)
class PredictOptions(ViewOptions):
    """How `predict` recognises pictures."""

    top: int = option(5, "number of classes for each picture", least=1)
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", ENGINE, show=False)
