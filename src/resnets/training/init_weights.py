"""Start from given weights, with a new classifier if the classes differ."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.errors import UserError
from resnets.nn import ResNet, build
from resnets.spec import Spec
from resnets.weights.files import read, read_metadata
from resnets.weights.metadata import about
from resnets.weights.networks import layout_in, load_weights, read_spec
from resnets.weights.pretrained import find_weights


class InitialState(NamedTuple):
    net: ResNet
    data: Images | Folder  # normalised as the weights were trained
    digest: str  # of the file
    sentence: str  # about it


# What differs between libraries in networks of the same name.
_OPEN = ("resize", "stride_on", "stem_activation", "share_activation", "bn_eps", "bn_momentum")


def fit_spec(path: str | Path, spec: Spec, decided: Collection[str]) -> Spec:
    """`spec` with the conventions of the weights, where its name leaves them open and the user has not decided."""
    file = _file(path)
    if "resnets.spec" in read_metadata(file):
        theirs = read_spec(file)
        found = {field: getattr(theirs, field) for field in _OPEN} if theirs.name == spec.name else {}
    else:
        found = layout_in(file).fitted(spec)
    return dataclasses.replace(spec, **{field: value for field, value in found.items() if field not in decided})


def _file(path: str | Path) -> Path:
    file = find_weights(str(path))
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
    known = about(metadata, source.spec, file)
    same = len(outputs) == spec.num_classes and known.classes in ((), data.classes)
    net = source if same else build(spec, seed=seed)
    if not same:
        kept = {k: v for k, v in source.state_dict().items() if not k.startswith("classifier.")}
        net.load_state_dict(kept, strict=False)
    if known.preprocessing is not None:
        if known.preprocessing.normalize == "channel":
            data = dataclasses.replace(data, mean=known.preprocessing.mean, std=known.preprocessing.std)
    elif layout.mean_std is not None:
        data = dataclasses.replace(data, mean=layout.mean_std[0], std=layout.mean_std[1])
    classifier = "and its classifier" if same else f"with a new classifier for {spec.num_classes} classes"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return InitialState(net, data, digest, f"begins at {file} {classifier}.")
