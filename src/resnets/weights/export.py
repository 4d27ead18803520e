"""`export`: a network as a file for other programs, which is written only if it computes the same.

Batch, height and width stay open. What a reader needs besides the graph stands in the file: `spec`, `classes`,
`preprocessing`, `provenance` as JSON, and the use in words.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.atomic import write_atomically
from resnets.data import contrast
from resnets.data.transform import preprocessing_of
from resnets.detection import onnx as detector_onnx
from resnets.engine.frozen import Frozen, freeze
from resnets.engine.onnx import export as onnx_model
from resnets.engine.onnx import need
from resnets.errors import UserError
from resnets.metadata import Preprocessing
from resnets.nn import ChainNet, Network, ResNet, shortcuts
from resnets.nn.structure import find_part_changes
from resnets.options import takes
from resnets.version import __version__
from resnets.weights.detectors import describe as describe_detector
from resnets.weights.detectors import is_detector, open_detector
from resnets.weights.models import Model, open_model
from resnets.weights.options import FORMATS, ExportOptions

_LONGEST = 100  # characters of a network's name in that of a file
CLOSE = 1e-4  # of the largest score, by which float32 may differ between two orders of adding


@dataclass(frozen=True)
class Exported:
    """What `export` wrote: the file, and by how much its scores differ from PyTorch's, of the largest score."""

    path: Path
    net: Any = field(repr=False)
    difference: float
    open_size: bool = True  # whether the size of the images is left open


@takes(ExportOptions)
def export(
    model: Model,
    out: str | os.PathLike[str] | None = None,
    *,
    options: ExportOptions,
    changes: dict[str, Any] | None = None,
) -> Exported:
    """Write a network for other programs: ONNX, or torch.export's format.

    `model` is what `load` takes, or the name of a network, whose weights are then new. Batch and image size stay open.
    The file is written only if its scores are PyTorch's.

    >>> resnets.export("preresnet20.cifar10", "net.onnx").path
    """
    if is_detector(model):
        if changes:
            raise UserError(f"a detector is exported as it is; leave out {', '.join(changes)}.")
        return export_detector(model, out, options.format)
    format = options.format or next((f for f, ending in FORMATS.items() if str(out).endswith(ending)), "onnx")
    net = open_model(model, changes=changes, fresh=True).float().eval()
    path = Path(out or file_name(net.spec.name, FORMATS[format]))
    if options.fold and not isinstance(net, ResNet):
        raise UserError(f"fold puts BN into the convolutions of residual units, and {net.spec.name} has none.")
    open_size = not isinstance(net, ChainNet) or (format == "onnx" and net.spec.open_size)
    data, runs = (_onnx if format == "onnx" else _torch_export)(net, options.fold, describe(net, open_size))
    off = difference(net, runs, preprocessing_of(net.metadata, net.spec).crop, open_size)
    if not off <= CLOSE:
        raise UserError(f"the {format} graph's scores differ from PyTorch's by {off:.1e} of the largest; not written.")
    write_atomically(path, data)
    return Exported(path, net, off, open_size)


def export_detector(model: Any, out: str | os.PathLike[str] | None, format: str | None) -> Exported:
    """A detector as ONNX, with NMS inside; written only if its boxes are PyTorch's."""
    if format == "torch-export" or str(out).endswith(FORMATS["torch-export"]):
        raise UserError("a detector is exported as ONNX; torch.export cannot hold non-maximum suppression.")
    net = copy.deepcopy(open_detector(model)).float().eval()
    path = Path(out or file_name(net.spec.name, FORMATS["onnx"]))
    about = {
        "resnets.version": __version__,
        "use": detector_onnx.describe_use(net),
        "spec": json.dumps(net.spec.to_dict()),
    }
    data = detector_onnx.write(net, {**about, **describe_detector(net)})
    need("onnx", "onnx").checker.check_model(data)
    off = detector_onnx.compare(net)
    if not off <= CLOSE:
        raise UserError(f"the ONNX graph's detections differ from PyTorch's by {off:.1e}; not written.")
    write_atomically(path, data)
    return Exported(path, net, off)


def file_name(network: str, ending: str) -> str:
    """A file name in the working directory, whatever a foreign file calls its network."""
    return (re.sub(r"[^A-Za-z0-9_.-]+", "_", network)[:_LONGEST].lstrip(".") or "network") + ending


def describe(net: Network, open_size: bool = True) -> dict[str, str]:
    """The metadata of the exported file."""
    known = {
        "spec": net.spec.to_dict(),
        "classes": list(net.classes),
        "preprocessing": preprocessing_of(net.metadata, net.spec).to_dict(),
        "provenance": dict(net.metadata.provenance),
    }
    texts = {key: json.dumps(value) for key, value in known.items() if value}
    return {"resnets.version": __version__, "use": describe_use(net, open_size), **texts}


def describe_use(net: Network, open_size: bool = True) -> str:
    """How to prepare the input, in words."""
    read = preprocessing_of(net.metadata, net.spec)
    fixed = not open_size or read.normalize in contrast.KINDS  # the mean image has a size
    sizes = "no other size" if fixed else "any larger size works too"
    return (
        f"RGB, shorter side {read.resize}, centre crop {read.crop}, {_describe_pixels(read)}; {sizes}. "
        "Softmax of the scores gives probabilities."
    )


def _describe_pixels(read: Preprocessing) -> str:
    """What becomes of the pixels x, from 0 to 255."""
    if read.normalize == "pixel":
        return "x / 255 less the mean training image"
    if read.normalize in contrast.KINDS:
        return f"{contrast.WORDS[read.normalize]} of the file of weights"
    mean, std = ([round(value, 6) for value in values] for values in (read.mean, read.std))
    return f"(x / 255 - {mean}) / {std}"


def difference(net: Network, runs: Callable[[Tensor], Tensor], side: int, open_size: bool = True) -> float:
    """The largest difference of the scores, relative to the largest, on shapes that the exporter did not see."""
    draw, worst = torch.Generator().manual_seed(0), 0.0
    shapes = ((1, side, side), (3, side, side + 8), (2, side + 24, side + 1))
    if isinstance(net, ChainNet):
        side, more = net.spec.input_size, 2 * net.spec.input_size  # at every size the branches may not fit
        shapes = ((1, side, side), (2, side, more), (3, more, side))
    if not open_size:
        shapes = ((1, side, side), (2, side, side), (3, side, side))
    for shape in shapes:
        x = torch.randn(shape[0], net.spec.in_channels, *shape[1:], generator=draw)
        with torch.no_grad():
            wanted = net(x)
            worst = max(worst, float((runs(x) - wanted).abs().max() / wanted.abs().max()))
    return worst


def _onnx(net: Network, fold: bool, known: dict[str, str]) -> tuple[bytes, Callable[[Tensor], Tensor]]:
    data = onnx_model(net, folded=fold, about=known)
    need("onnx", "onnx").checker.check_model(data)
    runtime = need("onnxruntime", "onnx")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return data, lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0])


def _torch_export(net: Network, fold: bool, known: dict[str, str]) -> tuple[bytes, Callable[[Tensor], Tensor]]:
    if isinstance(net, ChainNet):
        return _export_chain(net, known)
    assert isinstance(net, ResNet)
    module = Traced(freeze(net) if fold else net)
    least = 2**net.spec.halvings + 1  # of which a map of more than one pixel is left: one would be taken for a constant
    batch, height, width = torch.export.Dim("batch"), *(torch.export.Dim(n, min=least) for n in ("height", "width"))
    example = torch.zeros(2, net.spec.in_channels, 2 * least, 3 * least)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: batch, 2: height, 3: width},))
    return _write_program(program, known)


def _export_chain(net: ChainNet, known: dict[str, str]) -> tuple[bytes, Callable[[Tensor], Tensor]]:
    """With the batch left open; fully connected layers and windows fix the size of the images."""
    side = net.spec.input_size
    example = torch.zeros(2, net.spec.in_channels, side, side)
    program = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    return _write_program(program, known)


def _write_program(program: Any, known: dict[str, str]) -> tuple[bytes, Callable[[Tensor], Tensor]]:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"resnets.json": json.dumps(known)})
    again = torch.export.load(io.BytesIO(file.getvalue())).module()
    return file.getvalue(), again


class Traced(nn.Module):
    """The network's parts in order, in a form that torch.export can trace with dynamic sizes."""

    def __init__(self, net: ResNet | Frozen) -> None:
        super().__init__()
        if isinstance(net, ResNet) and (change := find_part_changes(net).frame):
            raise UserError(f"{net.spec.name} was changed ({change}), and is not exported; torch.export can trace it.")
        self.body = copy.deepcopy(nn.Sequential(net.stem, net.units, net.last))
        self.classifier = net.classifier
        for module in list(self.body.modules()):
            for name, child in module.named_children():
                if isinstance(child, shortcuts.Pad):
                    setattr(module, name, Smaller(child))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.body(x).mean((2, 3)))


class Smaller(nn.Module):
    """Option A with poolings whose result has its size written as that of a convolution.

    torch.export sees only then that the sizes of both paths are equal, whatever they are.
    """

    def __init__(self, pad: shortcuts.Pad) -> None:
        super().__init__()
        self.stride, self.zeros, self.pool = pad.stride, pad.zeros, pad.pool

    def forward(self, x: Tensor) -> Tensor:
        if not self.pool:
            return functional.pad(functional.avg_pool2d(x, 1, self.stride), self.zeros)
        ones = torch.ones_like(x[:, :1])  # how many pixels are averaged: at the end of an odd map fewer
        total, pixels = (functional.avg_pool2d(self._longer(t), self.stride) for t in (x, ones))
        return functional.pad(total / pixels, self.zeros)

    def _longer(self, x: Tensor) -> Tensor:
        return functional.pad(x, (0, self.stride - 1, 0, self.stride - 1))
