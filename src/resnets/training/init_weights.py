"""The weights that a training begins with, with a new classifier where the classes are others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.errors import UserError
from resnets.nn import ResNet, build
from resnets.spec import Spec
from resnets.weights.compare import find_differing_fields, format_fields
from resnets.weights.models import find, hash_file, open_model


class InitialState(NamedTuple):
    net: ResNet
    data: Images | Folder  # normalised as the weights were trained
    digest: str  # of the file
    sentence: str  # for people


# What differs between libraries in networks of the same name.
_OPEN = ("resize", "stride_on", "stem_activation", "share_activation", "bn_eps", "bn_momentum")


def begin_at(
    weights: str | Path, spec: Spec, data: Images | Folder, seed: int, decided: Collection[str] = ()
) -> InitialState:
    """The network of `spec` with the weights of a file, of a finished run or of a pretrained name.

    Where the name of a network leaves something open, and the user has not decided it, it is as the weights mean it.
    """
    source, file = open_model(weights), find(weights)
    assert isinstance(file, Path)  # open_model refuses the names of networks
    theirs = source.spec
    spec = dataclasses.replace(spec, **{field: getattr(theirs, field) for field in _OPEN if field not in decided})
    if wrong := find_differing_fields(dataclasses.replace(spec, num_classes=theirs.num_classes), theirs):
        raise UserError(
            f"{weights} holds weights of {theirs.name} with {format_fields(theirs, wrong)}, and {spec.name} has "
            f"{format_fields(spec, wrong)}: train {theirs.name}, or begin with other weights."
        )
    same = theirs.num_classes == spec.num_classes and source.classes in ((), data.classes)
    net, state = build(spec, seed=seed), source.state_dict()
    kept = {name: tensor for name, tensor in state.items() if same or not name.startswith("classifier.")}
    net.load_state_dict(kept, strict=same)
    known = source.metadata.preprocessing
    if known is not None and known.normalize == "channel":
        data = dataclasses.replace(data, mean=known.mean, std=known.std)
    classifier = "and its classifier" if same else f"with a new classifier for {spec.num_classes} classes"
    file = file / "final.safetensors" if (file / "final.safetensors").exists() else file
    return InitialState(net, data, hash_file(file), f"begins at {file} {classifier}.")
