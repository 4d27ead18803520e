"""What `resnets eval` does."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from resnets.data import load as load_data
from resnets.data.augment import Normalize
from resnets.data.images import Images
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.inference import chosen, inference
from resnets.errors import UserError
from resnets.evaluate.error import Score, evaluate
from resnets.evaluate.precise_bn import precise_bn
from resnets.interop.files import read_metadata
from resnets.interop.weights import layout_in, load, load_weights
from resnets.nn import ResNet, build
from resnets.zoo import spec_of

BATCH = 500


@dataclass(frozen=True)
class Subject:
    """A network to test, with what its file says about its data."""

    net: ResNet
    what: str  # a sentence for the reader
    data: str | None = None  # its name, and the hash of its pixels and labels
    digest: str | None = None
    normalize: str = "channel"
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def subject(path: Path, network: str | None, changes: dict[str, Any], source: str) -> Subject:
    """The network of a run's folder, of a weights file of ours, or of another library's with the network named."""
    if path.is_dir():
        if not (path / "final.safetensors").exists():
            raise UserError(f"{path} has no final.safetensors: the run is not finished, or it is no run.")
        path = path / "final.safetensors"
    metadata = read_metadata(path)
    if "resnets.spec" in metadata:
        if network or changes:
            raise UserError(f"{path} says itself what its network is; leave out --network and what differs from it.")
        given = json.loads(metadata.get("preprocessing", "{}"))
        known = (tuple(given["mean"]), tuple(given["std"])) if given else None
        data = json.loads(metadata.get("run", "{}")).get("data", {})
        net = load(path)
        return Subject(
            net,
            f"{net.spec.name} from {path}",
            data.get("name"),
            data.get("digest"),
            given.get("normalize", "channel"),
            known,
        )
    if network is None:
        raise UserError(
            f"{path} does not say which network it holds; name it with --network, as in --network resnet20."
        )
    layout = layout_in(path, source)
    spec = spec_of(network, **changes)
    # Another library's conventions are followed where the user has not decided otherwise.
    spec = dataclasses.replace(spec, **{k: v for k, v in layout.fitted(spec).items() if k not in changes})
    net = build(spec)
    return Subject(net, str(load_weights(net, path, source)), mean_std=layout.mean_std)


def normalization(given: Subject, images: Images, per: str | None) -> Normalize:
    """As the weights were trained, unless the user says otherwise."""
    kind = per or given.normalize
    if kind == "channel" and per is None and given.mean_std is not None:
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in given.mean_std)
        return Normalize(mean, std)
    return Normalize.of(images, kind)


def score(
    given: Subject,
    images: Images,
    *,
    per: str | None = None,
    precise: int = 0,
    device: torch.device | str = "cpu",
    engine: str = "auto",
) -> Score:
    """The error on the test images; `precise` takes BN's statistics from that many training images first."""
    net, normalize = given.net.to(device), normalization(given, images, per).to(device)
    channels = images.train_images.shape[1]
    if channels != net.spec.in_channels:
        raise UserError(f"{images.name} has {channels} channels and {net.spec.name} reads {net.spec.in_channels}.")
    if images.num_classes != net.spec.num_classes:
        raise UserError(
            f"{images.name} has {images.num_classes} classes and {net.spec.name} tells {net.spec.num_classes} apart; "
            "choose the data that it was trained on with --data."
        )
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precise:
        count = min(precise, len(images.train_images))
        first = torch.from_numpy(images.train_images[:count])
        precise_bn(net, (normalize(first[i : i + BATCH].to(device)) for i in range(0, count, BATCH)))
    return evaluate(
        inference(net, engine, device),
        torch.from_numpy(images.test_images),
        torch.from_numpy(images.test_labels),
        normalize,
        batch=BATCH,
        device=device,
    )


def eval_command(
    path: str,
    *,
    data: str | None,
    data_dir: str | None,
    network: str | None,
    changes: dict[str, Any],
    source: str,
    per: str | None,
    precise: int,
    device: str,
    engine: str,
    as_json: bool,
) -> None:
    keep_freed_memory()
    place = choose(device)
    means = chosen(engine, place)
    given = subject(Path(path), network, changes, source)
    images = load_data(data or given.data or "cifar10", data_dir)
    if images.name == given.data and images.digest != given.digest:
        print(f"resnets: warning: this {images.name} is not the one that {path} was trained on.", file=sys.stderr)
    found = score(given, images, per=per, precise=precise, device=place, engine=means)
    if as_json:
        about = {"network": given.net.spec.to_dict(), "data": images.name, "engine": means}
        print(json.dumps({**about, **found.to_dict()}, indent=2))
        return
    print(given.what)
    print(f"{given.net.spec.name} on {images.name}: {found}")
    print(f"that is {100 - found.error:.2f} % right")
