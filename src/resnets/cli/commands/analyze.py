"""What `resnets analyze` does: networks, files of weights and runs measured on the same images, told and drawn."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from resnets.analysis.propagation import Propagation, propagation
from resnets.analysis.propagation_table import KEY, print_propagation
from resnets.analysis.signal_table import LOGGED_KEY, logged, print_logged
from resnets.atomic import write_atomically
from resnets.data import load as load_data
from resnets.data.counter_rng import order
from resnets.data.images import Images
from resnets.engine.device import choose
from resnets.errors import UserError, one_of
from resnets.nn import ResNet, build
from resnets.report.propagation import draw, plotting
from resnets.runs import Run, RunKey, provenance
from resnets.text import json_text, print_json, print_lines, say
from resnets.weights.files import read, read_metadata
from resnets.weights.loaded_model import LoadedModel, normalization, subject
from resnets.metadata import Metadata, Preprocessing
from resnets.zoo import NETWORKS, spec_of

VARIED = ("order", "shortcut", "resize")  # the fields of a network whose values are words


@dataclass(frozen=True)
class Case:
    """One curve: a network that is made when its images are there."""

    label: str
    data: str | None  # that it was trained on
    make: Callable[[Images], LoadedModel]


def analyze_command(
    words: Sequence[str],
    *,
    changes: dict[str, Any],
    vary: str | None,
    along: bool,
    data: str | None,
    data_dir: str | None,
    batch: int,
    batches: int,
    seed: int,
    statistics: str,
    device: str,
    out: str | None,
    as_json: bool,
) -> None:
    if out is not None:
        plotting()
        Path(out).mkdir(parents=True, exist_ok=True)
    cases = [case for word in words for case in _cases(word, changes, vary, along, seed)]
    place, get = choose(device), cache(partial(load_data, dir=data_dir))
    results = []
    for case in cases:
        images = get(data or case.data or "cifar10")
        given = case.make(images)
        if images.name == given.about.data and images.digest != given.about.digest:
            say(f"warning: this {images.name} is not what {case.label} was trained on.")
        found = measure(given, images, batch=batch, batches=batches, seed=seed, statistics=statistics, device=place)
        results.append({"label": case.label, "data": images.name, "seed": seed, **found.to_dict()})
        if not as_json:
            print_propagation(case.label, images.name, found)
    along_training = logged(words)
    if not as_json:
        for name, lines in along_training.items():
            print_logged(name, lines)
        print_lines(*KEY.splitlines(), *(LOGGED_KEY.splitlines() if along_training else ()))
    everything = {"analyses": results, "logged": along_training, "provenance": provenance()}
    if as_json:
        print_json(everything)
    if out is not None:
        _write(Path(out), everything, tell=not as_json)


def measure(
    given: LoadedModel,
    images: Images,
    *,
    batch: int,
    batches: int,
    seed: int,
    statistics: str,
    device: torch.device,
) -> Propagation:
    """On training images, drawn by the seed and not augmented, normalised as the network was trained."""
    net, count = given.net.to(device), batch * batches
    if count > len(images.train_images):
        raise UserError(f"{images.name} has {len(images.train_images)} training images; {count} were asked for.")
    if images.num_classes > net.spec.num_classes:
        raise UserError(
            f"{images.name} has {images.num_classes} classes and {net.spec.name} tells {net.spec.num_classes} apart; "
            "choose other data with --data."
        )
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    index = order(len(images.train_images), seed, 0)[:count]
    x = normalization(given, images, None)(torch.from_numpy(images.train_images[index]))
    y = torch.from_numpy(images.train_labels[index])
    x = x.contiguous(memory_format=torch.channels_last)
    return propagation(net, x, y, batch=batch, statistics=statistics, seed=seed)


def _write(folder: Path, everything: dict[str, Any], *, tell: bool) -> None:
    pictures = [folder / "propagation.svg", folder / "propagation.png"]
    data = folder / "propagation.json"
    write_atomically(data, json_text(everything, indent=1).encode())
    draw(everything["analyses"], pictures)
    if tell:
        for path in (data, *pictures):
            print_lines(path)


# --- what is to be analysed -------------------------------------------------------------------


def _cases(word: str, changes: dict[str, Any], vary: str | None, along: bool, seed: int) -> Iterator[Case]:
    """The curves of a word: a network with its variants, a file of weights, a run."""
    if word in NETWORKS or not (set(word) & set("./\\") or os.path.exists(word)):
        for variant in _variants(changes, vary):
            spec_of(word, **variant)  # a mistake is told before the first one is measured
            yield Case(_named(word, variant), None, partial(_fresh, word, variant, seed))
        return
    path = Path(word)
    if changes or vary:
        raise UserError(f"{path} says itself what its network is; leave out --vary and the options of a network.")
    if path.is_dir():
        yield from _run_cases(Run(path), along)
        return
    metadata = read_metadata(path)
    if "resnets.spec" not in metadata:
        raise UserError(f"{path} does not say which network it holds; load it and save it by resnets.save_weights.")
    trained_on = json.loads(metadata.get("run", "{}")).get("data", {}).get("name")
    yield Case(str(path), trained_on, lambda _: subject(path, None, {}, "auto"))


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


def _named(word: str, changes: dict[str, Any]) -> str:
    return ", ".join([word, *(f"{name}={value}" for name, value in changes.items())])


def _fresh(word: str, changes: dict[str, Any], seed: int, images: Images) -> LoadedModel:
    """A named network as it is initialised, for these images."""
    fitting = {"num_classes": images.num_classes, "in_channels": images.train_images.shape[1]}
    return LoadedModel(build(spec_of(word, **{**fitting, **changes}), seed=seed), word)


_CHECKPOINT = re.compile(r"step-([0-9]{1,18})-.*\.safetensors")


def _run_cases(run: Run, along: bool) -> Iterator[Case]:
    """The network that a run left, or its newest checkpoint; with `along` also what it began with and all others."""
    identity, name, result = run.identity, run.path.name, run.result
    checkpoints = {int(m[1]): p for p in run.checkpoints.glob("*") if (m := _CHECKPOINT.fullmatch(p.name))}
    if result is None and not checkpoints:
        raise UserError(f"{run.path} has neither a final network nor a checkpoint; train it, or name its network.")
    if result is not None:
        checkpoints.pop(result["steps"], None)  # that network is the final one
    if along:
        start = partial(build, identity.spec, seed=identity.seed)
        yield Case(f"{name}, initial", identity.data, lambda images: _of_run(identity, start(), images))
    steps = sorted(checkpoints)
    for step in steps if along else steps[-1:] if result is None else []:
        make = partial(_checkpointed, identity, checkpoints[step])
        yield Case(f"{name}, step {step:,}", identity.data, make)
    if result is not None:
        yield Case(f"{name}, final", identity.data, lambda _: subject(run.path, None, {}, "auto"))


def _checkpointed(identity: RunKey, path: Path, images: Images) -> LoadedModel:
    """The network of a checkpoint: the averaged one where there is one, as it is tested and kept."""
    tensors, net = read(path).tensors, build(identity.spec)
    prefix = "average." if any(name.startswith("average.") for name in tensors) else "net."
    try:
        net.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    except RuntimeError:  # whose message is a list of every tensor
        raise UserError(f"{path} is not a checkpoint of {identity.spec.name}: its tensors are others.") from None
    return _of_run(identity, net, images)


def _of_run(identity: RunKey, net: ResNet, images: Images) -> LoadedModel:
    recipe = identity.recipe
    read = Preprocessing(images.mean, images.std, recipe.normalize, held_out=recipe.validation)
    return LoadedModel(net, net.spec.name, Metadata(preprocessing=read, data=identity.data, digest=identity.digest))
