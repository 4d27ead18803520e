"""The options of `evaluate` and `predict`: no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from resnets.detect_options import METRICS, DetectOptions
from resnets.options import BAD_BOXES, DATA, DEVICE, THREADS, list_meanings, option, parse_threads
from resnets.view_options import ViewOptions

ENGINE = "plain, frozen, onnxruntime or openvino (auto: frozen on a CPU, else plain)"


@dataclass(frozen=True)
class EvaluateOptions(DetectOptions, ViewOptions):
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
    mirror: bool = option(
        False, "average each image of a set in memory and its mirror image; with a detector, each picture",
        group="test views",
    )  # fmt: skip
    shift: int = option(
        0, "average each image of a set in memory with itself moved by N pixels both ways", group="test views",
        metavar="N", least=0,
    )  # fmt: skip
    metric: str | None = option(
        None, f"{list_meanings(METRICS)} (by the data)", choices=METRICS, group="detectors", metavar="METRIC",
    )  # fmt: skip
    least_score: float = option(0.01, "least score of a detection", group="detectors", least=0, most=1)
    bad_boxes: str = option(
        "error", f"boxes without area, outside of their picture or of unknown classes: {list_meanings(BAD_BOXES)}",
        choices=BAD_BOXES, metavar="POLICY", group="detectors", show=False,
    )  # fmt: skip
    precise_bn: int = option(0, "recompute BN's statistics over N training images", metavar="N", least=0, show=False)
    bad_images: str = option("error", "images that cannot be decoded: error, or skip", metavar="POLICY")
    data_dir: str | Path | None = option(None, "folder to look for the data in", metavar="DIR", aliases={"dir": "{}"})
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", ENGINE, show=False)
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")


@dataclass(frozen=True)
class PredictOptions(DetectOptions, ViewOptions):
    """How `predict` recognises pictures."""

    top: int = option(5, "number of classes for each picture", least=1)
    mirror: bool = option(False, "average each picture and its mirror image", group="detectors")
    least_score: float = option(0.5, "least score of a detection", group="detectors", least=0, most=1)
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", ENGINE, show=False)
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")
