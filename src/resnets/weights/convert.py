"""What `resnets import` does: others' weights become a file of ours that says all that is needed to use it."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from resnets.bounded import read_bounded
from resnets.errors import UserError
from resnets.text import print_lines
from resnets.weights.classes import read_classes
from resnets.weights.keras import load_keras
from resnets.weights.loaded_model import LoadedModel, subject
from resnets.metadata import parse_sides
from resnets.weights.networks import layout_in, save_weights
from resnets.weights.tfjs import TEXT, is_tfjs

Floats = tuple[float, ...]


def import_command(
    source: str,
    out: str,
    *,
    network: str | None = None,
    changes: dict[str, Any] | None = None,
    library: str = "auto",
    classes: str | None = None,
    mean: Floats | None = None,
    std: Floats | None = None,
    crop: str | None = None,
) -> None:
    given = imported(Path(source), network, changes or {}, library)
    spec = given.net.spec
    known, usual = given.about, given.preprocessing
    for name, values in (("mean", mean), ("std", std)):
        if values is not None and len(values) != spec.in_channels:
            raise UserError(f"--{name} needs {spec.in_channels} numbers, one for each channel, not {len(values)}.")
    if std is not None and min(std) <= 0:
        raise UserError("--std must be above 0.")
    side, shorter = parse_sides(crop) if crop else (usual.crop, usual.resize)
    usual = dataclasses.replace(
        usual,
        mean=mean or usual.mean,
        std=std or usual.std,
        crop=side,
        resize=shorter,
    )
    if classes is not None:
        names, folders = read_classes(_text(Path(classes)), spec.num_classes, classes)
        known = dataclasses.replace(known, classes=names, folders=folders)
    known = dataclasses.replace(known, preprocessing=usual)
    save_weights(given.net, out, metadata=known.to_metadata())
    print_lines(given.what)
    told = (
        ", ".join(known.classes[:3]) + " ..." if known.classes else "classes without names; --classes FILE gives some"
    )
    print_lines(f"{spec.num_classes} classes: {told}")
    print_lines(
        f"reads RGB, shorter side {usual.resize}, crop {usual.crop}, mean {_list(usual.mean)}, std {_list(usual.std)}"
    )
    print_lines(out)


def imported(path: Path, network: str | None, changes: dict[str, Any], library: str) -> LoadedModel:
    if is_tfjs(path):
        if network or changes:
            raise UserError(f"{path} can only be Keras's ResNet-50; leave out --network and what differs from it.")
        net, known = load_keras(path)
        return LoadedModel(net, f"{known.provenance['source']}", known)
    given = subject(path, network, changes, library)
    if given.about.provenance or given.about.data:  # a file of ours
        return given
    origin = {
        "source": f"{layout_in(path).title}, from {path.name}",
        "sha256": _sha256(path),
    }
    return dataclasses.replace(given, about=dataclasses.replace(given.about, provenance=origin))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while some := file.read(1 << 20):
            digest.update(some)
    return digest.hexdigest()


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return read_bounded(file, TEXT, path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error


def _list(values: Floats) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
