"""Where a training begins: at a new network, or at given weights with a new classifier if the classes are others."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.errors import UserError
from resnets.metadata import parse_metadata
from resnets.nn import ResNet, build
from resnets.spec import Spec
from resnets.weights.files import read, read_metadata
from resnets.weights.models import find
from resnets.weights.networks import layout_in, load_weights, read_spec


class InitialState(NamedTuple):
    net: ResNet
    data: Images | Folder  # normalised as the weights were trained
    digest: str  # of the file
    told: str  # a sentence


# What networks of one name differ in from library to library.
_OPEN = ("resize", "stride_on", "stem_activation", "share_activation", "bn_eps", "bn_momentum")


def fitted(path: str | Path, spec: Spec, decided: Collection[str]) -> Spec:
    """The network of `spec` as the weights mean it, where its name leaves that open and nobody has decided it."""
    file = _file(path)
    if "resnets.spec" in read_metadata(file):
        theirs = read_spec(file)
        found = {field: getattr(theirs, field) for field in _OPEN} if theirs.name == spec.name else {}
    else:
        found = layout_in(file).fitted(spec)
    return dataclasses.replace(spec, **{field: value for field, value in found.items() if field not in decided})


def _file(path: str | Path) -> Path:
    file = find(path)
    if isinstance(file, str):
        raise UserError(
            f"{path} is a network without weights; name a file of weights, a finished run or a pretrained net."
        )
    return file / "final.safetensors" if file.is_dir() else file


def from_weights(path: str | Path, spec: Spec, data: Images | Folder, seed: int) -> InitialState:
    """The network of `spec` with the weights of a file, of a finished run or of the package."""
    file = _file(path)
    metadata, layout = read_metadata(file), layout_in(file)
    outputs = read(file).tensors.get(layout.names(spec, ["classifier.bias"])["classifier.bias"])
    if outputs is None:
        raise UserError(f"{file} has no classifier, so it holds no whole network.")
    source = build(dataclasses.replace(spec, num_classes=len(outputs)))
    load_weights(source, file)
    known = parse_metadata(metadata, source.spec, file)
    same = len(outputs) == spec.num_classes and known.classes in ((), data.classes)
    net = source if same else build(spec, seed=seed)
    if not same:
        kept = {k: v for k, v in source.state_dict().items() if not k.startswith("classifier.")}
        net.load_state_dict(kept, strict=False)
    if known.preprocessing is not None:
        if known.preprocessing.normalize == "channel":
            data = dataclasses.replace(data, mean=known.preprocessing.mean, std=known.preprocessing.std)
    elif (mean_std := layout.mean_std(source.spec)) is not None:
        data = dataclasses.replace(data, mean=mean_std[0], std=mean_std[1])
    classifier = "and its classifier" if same else f"with a new classifier for {spec.num_classes} classes"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return InitialState(net, data, digest, f"begins at {file} {classifier}.")
