"""The options of `convert` and `export`: no torch here."""

from __future__ import annotations

from dataclasses import dataclass

from resnets.options import Options, option, parse_reals

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2"}
Floats = tuple[float, ...]


@dataclass(frozen=True)
class ConvertOptions(Options):
    """What `convert` writes into the file beside the weights."""

    network: str | None = option(None, "network in the file, where its tensors leave a doubt: resnet50", metavar="NAME")
    library: str = option("auto", "library whose weights it must be", metavar="LIBRARY", aliases={"source": "{}"})
    classes: str | None = option(
        None, 'JSON file with the names of the classes: a list, or {"0": [FOLDER, NAME], ...}', metavar="FILE"
    )
    mean: Floats | None = option(
        None, "mean of R, G, B in 0 to 1, as trained: 0.485,0.456,0.406", metavar="X,X,X", parse=parse_reals
    )
    std: Floats | None = option(
        None, "standard deviation of R, G, B, as trained: 0.229,0.224,0.225", metavar="X,X,X", parse=parse_reals
    )
    crop: str | None = option(None, "crop and shorter side to test with: 224@256", metavar="N@M")


@dataclass(frozen=True)
class ExportOptions(Options):
    """How `export` writes a network."""

    format: str | None = option(
        None, "onnx or torch-export (by the ending of the file, else onnx)", choices=FORMATS, show=False
    )
    fold: bool = option(False, "fold BN into the convolutions: smaller and faster")
