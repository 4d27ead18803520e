"""Files of detectors: one safetensors file with spec, classes and preprocessing; and weights for their backbones."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from resnets.detection.detector import FasterRCNN, Scaling, build_detector
from resnets.detector_spec import DetectorSpec, VggSpec
from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD, Metadata
from resnets.runs import Run
from resnets.spec import Spec
from resnets.version import __version__
from resnets.weights import files
from resnets.weights.compare import find_differing_fields, format_fields
from resnets.weights.files import AnyPath, some
from resnets.weights.pretrained import file_of, public_of
from resnets.weights.vgg import read_vgg

KEY = "resnets.detector"


def save_detector(net: FasterRCNN, path: AnyPath, metadata: Mapping[str, str] | None = None) -> None:
    """Write a detector as safetensors, atomically; its spec, classes and preprocessing are in the header."""
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in net.state_dict().items()}
    header = {"format": "pt", "resnets.version": __version__, KEY: json.dumps(net.spec.to_dict()), **describe(net)}
    files.write(path, state, {**header, **(metadata or {})})


def describe(net: FasterRCNN) -> dict[str, str]:
    """Classes and preprocessing, for the header of a file."""
    return {
        "classes": json.dumps(list(net.classes)),
        "preprocessing": json.dumps(dataclasses.asdict(net.scaling)),
        **({"provenance": json.dumps(dict(net.metadata.provenance))} if net.metadata.provenance else {}),
    }


def find_file(what: object) -> Path | None:
    """The file of a detector that a word, a run or a path names; None if it is something else."""
    if not isinstance(what, str | os.PathLike | Run):
        return None
    path = what.path if isinstance(what, Run) else Path(what).expanduser()
    try:
        path = path / "final.safetensors" if path.is_dir() else path
        if not path.is_file() or path.stat().st_size < 10:
            return None
        return path if KEY in files.read_metadata(path) else None
    except (OSError, UserError):
        return None


def is_detector(what: object) -> bool:
    """Whether this is a detector, or names the file or the run of one."""
    return isinstance(what, FasterRCNN) or find_file(what) is not None


def open_detector(what: object) -> FasterRCNN:
    """The detector of a file or a finished run, in eval mode."""
    if isinstance(what, FasterRCNN):
        return what
    path = find_file(what)
    if path is None:
        raise UserError(f"{what} is no detector; `resnets train faster_rcnn_resnet50 --data voc:DIR` makes one.")
    file = files.read(path)
    spec = _read_spec(file.metadata, path)
    if spec.num_classes > (1 << 20) or _count_layers(spec) > len(file.tensors):
        raise UserError(f"{path} describes more layers than its {len(file.tensors)} tensors.")
    net = build_detector(spec)
    _require_fitting(net.state_dict(), file.tensors, path)
    net.load_state_dict(file.tensors)
    net.scaling, net.metadata = _read_header(file.metadata, spec, path)
    run = Run(path.parent)
    if path.name == "final.safetensors" and run.exists and net.metadata.data:
        net.metadata = dataclasses.replace(net.metadata, data=run.data)
    return net.eval()


def _count_layers(spec: DetectorSpec) -> int:
    backbone = spec.backbone
    return sum(map(len, backbone.stages)) if isinstance(backbone, VggSpec) else backbone.depth


def _read_spec(header: Mapping[str, str], path: Path) -> DetectorSpec:
    try:
        return DetectorSpec.from_dict(json.loads(header[KEY]))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} describes its detector in a way that cannot be read: {error}") from error


def _require_fitting(own: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
    """Refuse missing, unexpected and misshaped tensors, and numbers that are not finite."""
    faults = {
        "missing": [name for name in own if name not in found],
        "unexpected": [name for name in found if name not in own],
        "misshaped": [name for name in own if name in found and found[name].shape != own[name].shape],
        "not finite": [n for n, t in found.items() if t.is_floating_point() and not t.isfinite().all()],
    }
    if problems := [f"{len(names)} {fault} ({some(names)})" for fault, names in faults.items() if names]:
        raise UserError(f"{path} does not fit its description: {'; '.join(problems)}.")


def _read_header(header: Mapping[str, str], spec: DetectorSpec, path: Path) -> tuple[Scaling, Metadata]:
    try:
        classes = tuple(json.loads(header.get("classes", "[]")))
        given = json.loads(header.get("preprocessing", "{}"))
        run = json.loads(header.get("run", "{}"))
        provenance = json.loads(header.get("provenance", "{}"))
        if len(classes) != spec.num_classes or not all(isinstance(name, str) for name in classes):
            raise ValueError(f"classes must name each of the {spec.num_classes} classes.")
        scaling = _read_scaling(given, spec)
        data = run.get("data") or {}
        origin = f"{spec.name} from {path}"
        return scaling, Metadata(
            classes, data=data.get("name"), digest=data.get("digest"), provenance=dict(provenance), origin=origin
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} has metadata that cannot be read: {error}") from error


def _read_scaling(given: Mapping[str, Any], spec: DetectorSpec) -> Scaling:
    mean, std = (tuple(float(value) for value in given[key]) for key in ("mean", "std"))
    if not len(mean) == len(std) == spec.in_channels or not all(map(math.isfinite, mean + std)) or min(std) <= 0:
        raise ValueError(f"mean and std must be {spec.in_channels} numbers each, the std above 0.")
    side, longest = given["side"], given["longest"]
    if type(side) is not int or type(longest) is not int or not 16 <= side <= 8192 or not side <= longest <= 16384:
        raise ValueError("side and longest must be whole numbers, the longest side at least as large as the other.")
    return Scaling(mean, std, side, longest)


# --- weights to begin with --------------------------------------------------------------------


class Start(NamedTuple):
    """What a training begins with."""

    spec: DetectorSpec
    tensors: dict[str, Tensor]  # of the detector, under its names
    mean_std: tuple[tuple[float, ...], tuple[float, ...]]
    sentence: str


# Fields in which networks of the same name differ between libraries: the weights decide, unless the user does.
_OPEN = ("resize", "stride_on", "stem_activation", "share_activation", "bn_eps", "bn_momentum")


def begin_detector(weights: str, spec: DetectorSpec, classes: tuple[str, ...], decided: Collection[str] = ()) -> Start:
    """Weights for a detector: those of a classifier for its backbone, or of another detector."""
    if find_file(weights) is not None:
        return _begin_at_detector(weights, spec, classes)
    if isinstance(spec.backbone, VggSpec):
        path = file_of(weights) if public_of(weights) else Path(weights).expanduser()
        tensors = {f"backbone.{name}": tensor for name, tensor in read_vgg(path, spec.backbone).items()}
        return Start(spec, tensors, IMAGENET_MEAN_STD, f"begins with the convolutions of {path}; the rest is new.")
    return _begin_at_classifier(weights, spec, spec.backbone, decided)


def _begin_at_classifier(weights: str, spec: DetectorSpec, backbone: Spec, decided: Collection[str]) -> Start:
    from resnets.weights.models import open_model  # which opens detectors by this module

    net = open_model(weights)
    theirs = net.spec
    backbone = dataclasses.replace(backbone, **{f: getattr(theirs, f) for f in _OPEN if f not in decided})
    if wrong := find_differing_fields(dataclasses.replace(backbone, num_classes=theirs.num_classes), theirs):
        raise UserError(
            f"{weights} holds weights of {theirs.name} with {format_fields(theirs, wrong)}, and {spec.name} has "
            f"{format_fields(backbone, wrong)}: train the detector of {theirs.name}, or begin with other weights."
        )
    state = {f"backbone.{k}": v for k, v in net.state_dict().items() if not k.startswith("classifier.")}
    known = net.metadata.preprocessing
    if known is not None and known.normalize != "channel":
        raise UserError(f"{weights} reads pictures less a mean picture, which pictures of any size do not have.")
    mean_std = (known.mean, known.std) if known else IMAGENET_MEAN_STD
    return Start(
        dataclasses.replace(spec, backbone=backbone),
        {name: tensor.detach().clone() for name, tensor in state.items()},
        mean_std,
        f"begins with the backbone of {net.metadata.origin or weights}; the rest is new.",
    )


def _begin_at_detector(weights: str, spec: DetectorSpec, classes: tuple[str, ...]) -> Start:
    """Another detector: with its two sibling layers if the classes are the same."""
    net = open_detector(weights)
    theirs = dataclasses.replace(net.spec, name=spec.name, num_classes=spec.num_classes)
    if isinstance(spec.backbone, Spec) and isinstance(theirs.backbone, Spec):
        opened = {f: getattr(theirs.backbone, f) for f in _OPEN}
        spec = dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, **opened))
    if theirs != spec:
        ours, other = spec.to_dict(), theirs.to_dict()
        differ = [f"{key} {other[key]} (here {ours[key]})" for key in ours if ours[key] != other[key]]
        raise UserError(f"{weights} holds a detector with {some(differ)}: give the same, or begin with other weights.")
    same = net.classes == classes
    new = () if same else ("classifier.", "regressor.")
    tensors = {name: t.detach().clone() for name, t in net.state_dict().items() if not name.startswith(new or ("\0",))}
    rest = "and its classes" if same else f"with new classes ({len(classes)})"
    return Start(spec, tensors, (net.scaling.mean, net.scaling.std), f"begins at {weights} {rest}.")


@torch.no_grad()
def fill_detector(net: FasterRCNN, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into a detector; the others stay as they are."""
    state = net.state_dict()
    for name, tensor in tensors.items():
        state[name].copy_(tensor)
