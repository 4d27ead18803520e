"""`load`: from a name, a file or a run to a network; every function and command resolves models here."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from resnets.chain import Chain, NetworkSpec
from resnets.data.folder import IMAGENET_CLASSES
from resnets.errors import UserError
from resnets.metadata import Metadata, Preprocessing, parse_metadata
from resnets.nn import Network, build
from resnets.other_systems import OTHERS
from resnets.runs import Run
from resnets.weights import files, pretrained
from resnets.weights.compare import format_fields
from resnets.weights.detectors import KEY, is_detector, open_detector
from resnets.weights.files import WeightsFile
from resnets.weights.keras import load_keras
from resnets.weights.layout import Layout
from resnets.weights.networks import build_from_file, fill, layout_of_file, read_spec
from resnets.weights.public import PublicWeights
from resnets.weights.recognition import find_differences, infer_spec
from resnets.weights.tfjs import is_tfjs
from resnets.zoo import NETWORKS, spec_of

Model = str | os.PathLike[str] | Run | Network


def load(
    what: Model,
    *,
    num_classes: int | None = None,
    network: str | None = None,
    source: str = "auto",
    seed: int = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **changes: Any,
) -> Network:
    """A trained network: a pretrained name, a file of this or another library, or the folder of a run.

    The network of another library's file is found from its tensors; `network` and `changes` (fields of `Spec`) name it
    where they leave a doubt, and `source` says whose file it must be. With `num_classes` other than the file's the
    network gets a new classifier, drawn by `seed`. `net.classes` and `net.transform` are those of the file. The file or
    run of a detector gives a `FasterRCNN`.

    >>> net = resnets.load("preresnet20.cifar10")
    >>> net.classes[0]
    'airplane'
    >>> net = resnets.load("preresnet20.cifar10", num_classes=5)
    """
    if is_detector(what):
        if num_classes is not None or network or changes:
            raise UserError("a detector is loaded as it is: leave out num_classes, network and fields of the network.")
        return open_detector(what).to(device=device, dtype=dtype)  # type: ignore[return-value]
    net = open_model(what, network=network, changes=changes, source=source)
    if num_classes is not None and num_classes != net.spec.num_classes:
        net = replace_classifier(net, num_classes, seed)
    return net.to(device=device, dtype=dtype)


def open_model(
    what: Model,
    *,
    network: str | None = None,
    changes: Mapping[str, Any] | None = None,
    source: str = "auto",
    fresh: bool = False,
    seed: int = 0,
) -> Network:
    """The network that a word names, with its `metadata`; `fresh` allows a network without weights, by its name."""
    changes = dict(changes or {})
    if isinstance(what, Network):
        return what.original
    if isinstance(what, torch.nn.Module):
        raise UserError(
            f"a {type(what).__name__} is no network of this package; resnets.train scores modules of your own."
        )
    place = find(what.path if isinstance(what, Run) else what)
    if isinstance(place, str):
        if not fresh:
            trained = pretrained.of(place)
            advice = f"name trained weights: {', '.join(trained)}" if trained else "name a file of weights or a run"
            raise UserError(f"{place} is a network without weights; {advice}.")
        fresh_net = build(spec_of(place, **changes), seed=seed)
        return _describe(fresh_net, Metadata(origin=f"{place} with new weights, which are not trained"))
    if is_tfjs(place):
        if network or changes:
            raise UserError(f"{place} can only be Keras's ResNet-50; leave out --network and what differs from it.")
        keras, metadata = load_keras(place)
        return _describe(keras, dataclasses.replace(metadata, origin=f"{metadata.provenance['source']}"))
    if (public := pretrained.public_of(what)) and not os.path.exists(str(what)):  # as in `find`
        _require_no_changes(what, network, changes)
        return _open_public(public, place, source)
    if not place.is_dir():
        net = _open_file(place, network, changes, source)
        return net.float() if place.parent == pretrained.FOLDER else net  # the package has some in half precision
    net, run = _open_file(_final_weights(place), network, changes, source), Run(place)
    if run.exists and net.metadata.data:  # by a path that is right from any working directory
        net.metadata = dataclasses.replace(net.metadata, data=run.data)
    return net


def find(what: str | os.PathLike[str]) -> Path | str:
    """Resolve a word: a file or folder, or the name of a network."""
    word, path = os.fspath(what), Path(what).expanduser()
    if word in NETWORKS or word in OTHERS:
        return word
    if os.path.exists(path):  # also false for a name that no file can have
        return path
    if pretrained.is_name(word):
        return pretrained.file_of(word)
    if set(word) & set("./\\"):
        raise UserError(f"there is no file {word}.")
    spec_of(word)  # which names the nearest ones
    raise AssertionError(f"{word} is no network")


def _require_no_changes(path: object, network: str | None, changes: Mapping[str, Any]) -> None:
    if given := [*(["network"] if network else []), *changes]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"{path} says itself what its network is; leave out {options}.")


def find_spec(what: Model, changes: Mapping[str, Any] | None = None) -> NetworkSpec:
    """The spec of what `open_model` takes; of a file of ours without reading its tensors."""
    if isinstance(what, Network):
        return what.spec
    place = find(what.path if isinstance(what, Run) else what)
    if isinstance(place, str):
        return spec_of(place, **(changes or {}))
    path = place / "final.safetensors" if (place / "final.safetensors").exists() else place
    if path.is_file() and "resnets.spec" in files.read_metadata(path):
        _require_no_changes(path, None, changes or {})
        return read_spec(path)
    return open_model(what, changes=changes).spec


def _final_weights(folder: Path) -> Path:
    path = folder / "final.safetensors"
    if not path.exists():
        raise UserError(f"the folder {folder} has no final.safetensors: the run is not finished, or it is no run.")
    return path


def _open_file(path: Path, network: str | None, changes: dict[str, Any], source: str) -> Network:
    file = files.read(path)
    if KEY in file.metadata:
        raise UserError(f"{path} is a detector, and this needs a classifier; resnets.load opens it.")
    if "resnets.spec" in file.metadata:
        _require_no_changes(path, network, changes)
        net = build_from_file(file)
        metadata = parse_metadata(file.metadata, net.spec, path)
        return _describe(
            net, dataclasses.replace(metadata, origin=f"{net.spec.name} from {path}", arrays=net.metadata.arrays)
        )
    layout = layout_of_file(file, source)
    spec = _resolve_spec(file, layout, network, changes)
    net = build(spec)
    report = fill(net, file, layout, source)
    mean_std = layout.mean_std(spec)
    known = Metadata(
        preprocessing=Preprocessing.usual(spec, mean_std) if mean_std else None,
        provenance={"source": f"{layout.title}, from {path.name}", "sha256": hash_file(path)},
        origin=f"{report} The network is {spec.name} with {spec.num_classes} classes.",
    )
    return _describe(net, known)


def _open_public(public: PublicWeights, path: Path, source: str) -> Network:
    """Weights of another library by their name: classes and preprocessing are known."""
    net = _open_file(path, None, {}, source)
    if net.spec.name != public.network or net.spec.num_classes != IMAGENET_CLASSES:
        raise UserError(
            f"{path} holds {net.spec.name} with {net.spec.num_classes} classes, which is not {public.name}: remove it."
        )
    classes, folders = pretrained.read_imagenet_classes()
    known = dataclasses.replace(
        net.metadata,
        classes=classes,
        folders=folders,
        preprocessing=public.preprocessing,
        provenance={
            "source": f"{public.publisher}'s {public.file}",
            "licence": public.licence,
            "sha256": net.metadata.provenance["sha256"],
        },
        origin=f"{public.name} from {path}",
    )
    return _describe(net, known)


def _resolve_spec(file: WeightsFile, layout: Layout, network: str | None, changes: dict[str, Any]) -> NetworkSpec:
    """The network of another library's file: as its tensors say, and as the user says where these leave it open."""
    inferred = infer_spec(file.tensors, layout, file.path)
    if network is None:
        if inferred is None:
            raise UserError(
                f"{file.path} does not say which network it holds; name it with --network, as in --network resnet20 "
                "(in Python: network='resnet20')."
            )
        return dataclasses.replace(inferred, **changes)
    spec = spec_of(network, **changes)
    # Another library's conventions are followed where the user has not decided otherwise.
    spec = dataclasses.replace(spec, **{k: v for k, v in layout.adapt(spec).items() if k not in changes})
    if inferred is not None:
        if "num_classes" not in changes:
            spec = dataclasses.replace(spec, num_classes=inferred.num_classes)
        if isinstance(inferred, Chain):
            layout.require(spec, f"{file.path} holds weights of")
            if isinstance(spec, Chain) and "aux" not in changes:
                spec = dataclasses.replace(spec, aux=inferred.aux)
        if wrong := find_differences(spec, inferred):
            raise UserError(
                f"{file.path} holds a network with {format_fields(inferred, wrong)} ({inferred.name}), and {network} "
                f"has {format_fields(spec, wrong)}: leave out --network, or name the right one."
            )
    return spec


def _describe(net: Network, metadata: Metadata) -> Network:
    net.metadata = metadata
    return net


def replace_classifier(net: Network, num_classes: int, seed: int = 0) -> Network:
    """The same network with a new classifier, also in auxiliary heads, drawn by `seed`; its old classes are gone."""
    new = copy.deepcopy(net).train()
    new.reset_classifier(num_classes, seed=seed)
    return new


def drop_classifier(net: Network) -> dict[str, torch.Tensor]:
    """The tensors of a network without those of layers whose sizes follow the number of classes."""
    dropped = tuple(f"{name}." for name in net.class_modules)
    return {name: tensor for name, tensor in net.state_dict().items() if not name.startswith(dropped)}


def hash_file(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
