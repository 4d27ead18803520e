"""The options of `evaluate` and `predict`: no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from resnets.options import DATA, DEVICE, THREADS, option, parse_threads
from resnets.view_options import ViewOptions

ENGINE = "plain, frozen, onnxruntime or openvino (auto: frozen on a CPU, else plain)"


@dataclass(frozen=True)
class EvaluateOptions(ViewOptions):
    """How `evaluate` measures an error."""

    data: object = option(None, f"{DATA} (what it was trained on)", metavar="DATA")
    network: str | None = option(
        None, "network in another library's file, where its tensors leave a doubt: resnet20", metavar="NAME"
    )
    source: str = option("auto", "library whose weights the file must hold", metavar="LIBRARY")
    normalize: str | None = option(
        None, "statistics of the data instead of the file's: channel or pixel", choices=("channel", "pixel"),
        metavar="HOW",
    )  # fmt: skip
    mirror: bool = option(False, "average each image of a set in memory and its mirror image", group="test views")
    precise_bn: int = option(0, "recompute BN's statistics over N training images", metavar="N", least=0, show=False)
    bad_images: str = option("error", "images that cannot be decoded: error, or skip", metavar="POLICY")
    data_dir: str | Path | None = option(None, "folder to look for the data in", metavar="DIR", aliases={"dir": "{}"})
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", ENGINE, show=False)
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")


@dataclass(frozen=True)
class PredictOptions(ViewOptions):
    """How `predict` recognises pictures."""

    top: int = option(5, "number of classes for each picture", least=1)
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", ENGINE, show=False)
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")
