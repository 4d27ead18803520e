"""`convert`: write weights of another library as a self-describing file of ours."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from resnets.bounded import read_bounded
from resnets.data.transform import preprocessing_of
from resnets.errors import UserError
from resnets.metadata import parse_sides
from resnets.nn import Network
from resnets.options import takes
from resnets.weights.classes import read_classes
from resnets.weights.models import Model, open_model
from resnets.weights.networks import save_weights
from resnets.weights.options import ConvertOptions
from resnets.weights.tfjs import TEXT


@takes(ConvertOptions)
def convert(
    source: Model, out: str | os.PathLike[str], *, options: ConvertOptions, changes: dict[str, Any] | None = None
) -> Network:
    """Write another library's weights as a safetensors file with network, classes, preprocessing and origin inside.

    `source` is what `load` takes: a file of torchvision, timm, akamaster or chenyaofo, or Keras's ResNet-50 as a
    package of TensorFlow.js. The network that was written is returned.

    >>> net = resnets.convert("resnet50.pth", "resnet50.safetensors", classes="imagenet-classes.json")
    """
    net = open_model(source, network=options.network, changes=changes, source=options.library)
    net.metadata = dataclasses.replace(net.metadata, preprocessing=_preprocessing(net, options))
    if options.classes is not None:
        names, folders = read_classes(_read_text(Path(options.classes)), net.spec.num_classes, options.classes)
        net.metadata = dataclasses.replace(net.metadata, classes=names, folders=folders)
    save_weights(net, out)
    return net


def _preprocessing(net: Network, options: ConvertOptions) -> Any:
    usual, channels = preprocessing_of(net.metadata, net.spec), net.spec.in_channels
    for name, values in (("mean", options.mean), ("std", options.std)):
        if values is not None and len(values) != channels:
            raise UserError(f"--{name} needs {channels} numbers, one for each channel, not {len(values)}.")
    if options.std is not None and min(options.std) <= 0:
        raise UserError("--std must be above 0.")
    crop, resize = parse_sides(options.crop) if options.crop else (usual.crop, usual.resize)
    mean, std = options.mean or usual.mean, options.std or usual.std
    return dataclasses.replace(usual, mean=mean, std=std, crop=crop, resize=resize)


def _read_text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return read_bounded(file, TEXT, path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error
