"""The weights that a training begins with; other classes get a new classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from torch import nn

from resnets.chain import Chain, NetworkSpec
from resnets.data.datasets import Datasets
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.errors import UserError
from resnets.nn import build
from resnets.runs import ModuleKey
from resnets.weights.compare import find_differing_fields, format_fields
from resnets.weights.models import drop_classifier, find, hash_file, open_model


class InitialState(NamedTuple):
    """What a training begins with."""

    network: NetworkSpec | ModuleKey
    data: Images | Folder | Datasets  # normalised as the weights were trained
    net: nn.Module | None = None  # None: a new one
    digest: str = ""  # the hash of its weights
    sentence: str = ""  # for the user


# Fields in which networks of the same name differ between libraries.
_OPEN_OF_CHAINS = ("bn_eps", "bn_momentum", "aux")
_OPEN = ("resize", "stride_on", "stem_activation", "share_activation", "bn_eps", "bn_momentum")


def begin_at(
    weights: str | Path, spec: NetworkSpec, data: Images | Folder, seed: int, decided: Collection[str] = ()
) -> InitialState:
    """The network of `spec` with the weights of a file, of a finished run or of a pretrained name.

    The weights decide what the name of a network leaves open, unless the user has `decided` it.
    """
    source, file = open_model(weights), find(weights)
    assert isinstance(file, Path)  # open_model refuses the names of networks
    theirs = source.spec
    if type(spec) is type(theirs):
        left_open = _OPEN_OF_CHAINS if isinstance(spec, Chain) else _OPEN
        known = {field: getattr(theirs, field) for field in left_open if field not in decided}
        spec = dataclasses.replace(spec, **known)
    if wrong := find_differing_fields(dataclasses.replace(spec, num_classes=theirs.num_classes), theirs):
        raise UserError(
            f"{weights} holds weights of {theirs.name} with {format_fields(theirs, wrong)}, and {spec.name} has "
            f"{format_fields(spec, wrong)}: train {theirs.name}, or begin with other weights."
        )
    same = theirs.num_classes == spec.num_classes and source.classes in ((), data.classes)
    net: nn.Module = build(spec, seed=seed)
    net.load_state_dict(source.state_dict() if same else drop_classifier(source), strict=same)
    seen = source.metadata.preprocessing
    if seen is not None and seen.normalize == "channel":
        data = dataclasses.replace(data, mean=seen.mean, std=seen.std)
    classifier = "and its classifier" if same else f"with a new classifier for {spec.num_classes} classes"
    file = file / "final.safetensors" if (file / "final.safetensors").exists() else file
    return InitialState(spec, data, net, hash_file(file), f"begins at {file} {classifier}.")
