"""`analyze`: how signals and gradients travel through networks, weights and runs, measured on the same images."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from resnets.analysis.options import AnalyzeOptions
from resnets.analysis.propagation import Propagation, propagation
from resnets.chain import require_residual
from resnets.counter_rng import order
from resnets.data import open_labelled
from resnets.data.batches import FileBatches, MemoryBatches
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.data.picture import open_picture
from resnets.data.transform import normalization, transform_of
from resnets.engine.device import choose
from resnets.errors import UserError, one_of
from resnets.metadata import Metadata, Preprocessing
from resnets.nn import Network, ResNet, build, require_units
from resnets.nn.whitening import whiten
from resnets.options import takes
from resnets.runs import Run, RunKey
from resnets.weights.files import read
from resnets.weights.models import Model, find, open_model
from resnets.zoo import spec_of

VARIED = ("order", "shortcut", "resize")  # the fields of a network whose values are words
_NEEDS = "analyze measures"
Data = str | os.PathLike[str] | Images | Folder


@dataclass(frozen=True)
class Analysis:
    """One curve: what was measured, on which data."""

    label: str
    data: str
    seed: int
    propagation: Propagation
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "data": self.data, "seed": self.seed, **self.propagation.to_dict()}


@takes(AnalyzeOptions)
def analyze(model: Model, data: Data | None = None, *, options: AnalyzeOptions) -> Propagation:
    """Measure how signals and gradients travel through the units of a network: equations (4), (5), (7), (8) of v2.

    `model` is what `load` takes, or the name of a network, whose weights are then new. `data` is what `open_data`
    takes; by default what the network was trained on, else cifar10. The network stays as it is.

    >>> waves = resnets.analyze("preresnet110", data="cifar10")
    >>> waves.gradient, waves.product
    """
    if isinstance(model, Network):
        net = require_units(model.original, _NEEDS)
        what: Any = data or options.data or model.metadata.data or "cifar10"
        images = open_labelled(what, options.data_dir)
        return measure(copy.deepcopy(net), images, options)
    word = str(model.path) if isinstance(model, Run) else os.fspath(model)
    (analysis,) = analyze_each([word], data, options=options)
    return analysis.propagation


@takes(AnalyzeOptions)
def analyze_each(
    words: Sequence[str],
    data: Data | None = None,
    *,
    options: AnalyzeOptions,
    changes: Mapping[str, Any] | None = None,
    vary: str | None = None,
    along: bool = False,
) -> Iterator[Analysis]:
    """The analyses of several words, one after the other: of networks once for each value that `vary` names
    (`order=original,full_preact`), of runs with `along` also of the initial weights and of every checkpoint."""
    cases = [case for word in words for case in _cases(word, dict(changes or {}), vary, along, options.seed)]
    opened: dict[str, Images | Folder] = {}
    for case in cases:
        what: Any = data or options.data or case.data or "cifar10"
        if str(what) not in opened:
            opened[str(what)] = open_labelled(what, options.data_dir)
        images = opened[str(what)]
        net = case.make(images)
        known = net.metadata
        other = images.name == known.data and images.digest != known.digest
        warning = f"this {images.name} is not what {case.label} was trained on." if other else ""
        yield Analysis(case.label, images.name, options.seed, measure(net, images, options), warning)


def measure(net: ResNet, images: Images | Folder, options: AnalyzeOptions) -> Propagation:
    """On training images, drawn by the seed and not augmented, normalised as the network was trained."""
    device, count = choose(options.device), options.batch * options.batches
    labels = images.train.labels if isinstance(images, Folder) else images.train_labels
    if count > len(labels):
        raise UserError(f"{images.name} has {len(labels)} training images; {count} were asked for.")
    if images.num_classes > net.spec.num_classes:
        raise UserError(
            f"{images.name} has {images.num_classes} classes and {net.spec.name} has {net.spec.num_classes}; choose "
            "other data with --data."
        )
    net = net.to(device)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    index = order(len(labels), options.seed, 0)[:count]
    x, y = _read_images(net, images, index), torch.from_numpy(labels[index])
    x = x.contiguous(memory_format=torch.channels_last)
    return propagation(net, x, y, batch=options.batch, statistics=options.statistics, seed=options.seed)


def _read_images(net: ResNet, images: Images | Folder, index: Any) -> Tensor:
    if isinstance(images, Images):
        return normalization(net.metadata, net.spec, images)(torch.from_numpy(images.train_images[index]))
    transform = transform_of(net.metadata, net.spec)
    paths = (Path(images.train.path(i)) for i in index.tolist())
    return torch.stack([transform(open_picture(path, net.spec.in_channels)) for path in paths])


# --- what is to be analysed -------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """One curve: a network that is made when its images are there."""

    label: str
    data: str | None  # that it was trained on
    make: Callable[[Images | Folder], ResNet]


def _cases(word: str, changes: dict[str, Any], vary: str | None, along: bool, seed: int) -> Iterator[_Case]:
    """The curves of a word: a network with its variants, weights, a run."""
    place = find(word)
    if isinstance(place, str):
        for variant in _variants(changes, vary):
            require_residual(spec_of(place, **variant), _NEEDS)  # raises before anything is measured
            label = ", ".join([place, *(f"{name}={value}" for name, value in variant.items())])
            yield _Case(label, None, partial(_build_fresh, place, variant, seed))
    elif changes or vary:
        raise UserError(f"{word} says itself what its network is; leave out --vary and the options of a network.")
    elif place.is_dir() and (place / "config.json").exists():
        yield from _run_cases(Run(place), along)
    else:
        net = require_units(open_model(word), _NEEDS)
        yield _Case(word, net.metadata.data, lambda _: net)


def _variants(changes: dict[str, Any], vary: str | None) -> Iterator[dict[str, Any]]:
    """The changes, once for each value of `order=original,full_preact`."""
    if vary is None:
        yield changes
        return
    field, _, values = vary.partition("=")
    if field not in VARIED:
        raise one_of("field to vary", field, VARIED)
    if field in changes:
        raise UserError(f"give --vary {field} or --{field}, not both.")
    for value in values.split(","):
        yield {**changes, field: value}


def _build_fresh(word: str, changes: dict[str, Any], seed: int, images: Images | Folder) -> ResNet:
    """A named network as it is initialised, for these images."""
    fitting = {"num_classes": images.num_classes, "in_channels": images.channels}
    return build(require_residual(spec_of(word, **{**fitting, **changes}), _NEEDS), seed=seed)


_CHECKPOINT = re.compile(r"step-([0-9]{1,18})-.*\.safetensors")


def _run_cases(run: Run, along: bool) -> Iterator[_Case]:
    """The network that a run left, or its newest checkpoint; with `along` also its initial weights and all others.

    A run that began with given weights knows their hash alone, so it has no initial network to show.
    """
    key, name, result = run.identity, run.path.name, run.result
    require_residual(key.spec, _NEEDS)
    checkpoints = {int(m[1]): p for p in run.checkpoints.glob("*") if (m := _CHECKPOINT.fullmatch(p.name))}
    if result is None and not checkpoints:
        raise UserError(f"{run.path} has neither a final network nor a checkpoint; train it, or name its network.")
    if result is not None:
        checkpoints.pop(result["steps"], None)  # that network is the final one
    if along and not key.weights:
        yield _Case(f"{name}, initial", run.data, partial(_build_initial, key))
    steps = sorted(checkpoints)
    for step in steps if along else steps[-1:] if result is None else []:
        yield _Case(f"{name}, step {step:,}", run.data, partial(_read_checkpoint, key, checkpoints[step]))
    if result is not None:
        yield _Case(f"{name}, final", run.data, lambda _: require_units(open_model(run), _NEEDS))


def _build_initial(key: RunKey, images: Images | Folder) -> ResNet:
    """The network of a run before its first step."""
    net = build(require_residual(key.spec, _NEEDS), seed=key.seed)
    if key.recipe.whiten:
        where = key.recipe, key.seed, torch.device("cpu"), slice(0, 1)
        side = key.recipe.side or key.spec.input_size
        feed = MemoryBatches(images, *where) if isinstance(images, Images) else FileBatches(images, *where, side=side)
        whiten(net.stem.conv, feed.first_images())
    return _of_run(key, net, images)


def _read_checkpoint(key: RunKey, path: Path, images: Images | Folder) -> ResNet:
    """The network of a checkpoint: the averaged one where there is one, as it is tested and kept."""
    tensors, net = read(path).tensors, build(require_residual(key.spec, _NEEDS))
    prefix = "average." if any(name.startswith("average.") for name in tensors) else "net."
    try:
        net.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    except RuntimeError:  # whose message is a list of every tensor
        raise UserError(f"{path} is not a checkpoint of {key.spec.name}: its tensors are others.") from None
    return _of_run(key, net, images)


def _of_run(key: RunKey, net: ResNet, images: Images | Folder) -> ResNet:
    seen = Preprocessing(images.mean, images.std, key.recipe.normalize, held_out=key.recipe.validation)
    net.metadata = Metadata(preprocessing=seen, data=key.data, digest=key.digest)
    return net
