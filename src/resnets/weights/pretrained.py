"""Trained networks by name: those inside the package, and public ones that are fetched into the cache. No torch here.

`shipped/index.json` has the sha256 of each file in the package; `python -m tools.publish_weights RUN` adds to it.
`public.PUBLIC` lists the files of other libraries.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from resnets import records
from resnets.cache import cache_dir
from resnets.errors import UserError
from resnets.progress import Console, Progress
from resnets.weights.classes import Names, read_classes
from resnets.weights.public import ADDRESS, PUBLIC, PublicWeights, digits_in
from resnets.zoo import spec_of

FOLDER = Path(__file__).with_name("shipped")
DEFAULT = "preresnet20.cifar10"  # the default of `resnets predict`
_POINTER = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)  # in what the hub has in place of a large file


def index() -> dict[str, str]:
    """The names of the networks in the package, as `preresnet20.cifar10`, and the sha256 of their files."""
    path = FOLDER / "index.json"
    return records.INDEX.read(path) if path.exists() else {}


def of(network: str) -> list[str]:
    """The pretrained names of a network: `resnet50.tv_in1k` and others for `resnet50`; the first is the default."""
    return [name for name in (*index(), *PUBLIC) if name.partition(".")[0] == network]


def list_pretrained(pattern: str | None = None) -> list[dict[str, Any]]:
    """Every trained network that a name gives: whose it is, its error on what, its input, its licence, where it is.

    `pattern` is a shell pattern for names. `error` and `top5` are per cent of one centre crop; those of public weights
    are what the publisher states.

    >>> [row["name"] for row in list_pretrained("preresnet20*")]
    ['preresnet20.cifar10']
    """
    rows = [*map(_describe_shipped, index()), *map(_describe_public, PUBLIC.values())]
    return [row for row in rows if fnmatch.fnmatchcase(row["name"], pattern or "*")]


def _describe_shipped(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.safetensors"
    try:
        with path.open("rb") as file:  # the header of safetensors, which needs no torch
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
        error = json.loads(header["scores"])["test"]["error"]
        side = spec_of(name.partition(".")[0]).input_size
    except (OSError, ValueError, KeyError):
        raise UserError(f"{path} is missing or damaged; reinstall the package.") from None
    return {
        **{"name": name, "publisher": "resnets", "data": name.partition(".")[2], "error": error, "top5": None},
        **{"crop": side, "resize": side, "interpolation": None, "mebibytes": None},
        **{"licence": "MIT", "address": None, "file": str(path)},
    }


def _describe_public(public: PublicWeights) -> dict[str, Any]:
    seen = public.preprocessing
    return {
        **{"name": public.name, "publisher": public.publisher, "data": "imagenet", "error": public.error},
        **{"top5": public.error5, "crop": seen.crop, "resize": seen.resize, "interpolation": seen.interpolation},
        **{"mebibytes": public.mebibytes, "licence": public.licence, "address": public.address},
        "file": next((str(path) for path in _copies(public)), None),
    }


def name_of(network: str, pretrained: bool | str) -> str:
    """The pretrained name that `create(network, pretrained=...)` means: the default, or that of a training."""
    if "." in network:
        if pretrained is not True:
            raise UserError(f"{network} names its training already; write pretrained=True.")
        return network
    spec_of(network)  # which names the nearest ones to a name that is wrong
    known = of(network)
    if not known:
        raise UserError(f"there are no pretrained weights of {network}; `resnets models --pretrained` lists all.")
    if pretrained is True:
        return known[0]
    if (wanted := f"{network}.{pretrained}") not in known:
        raise UserError(f"there is no pretrained {wanted!r}; there are {', '.join(known)}.")
    return wanted


def is_name(word: str) -> bool:
    """Whether a word has the form of a pretrained name: NETWORK.TRAINING with a known training, or timm's own."""
    return word.partition(".")[2] in {name.partition(".")[2] for name in (*index(), *PUBLIC)} or word in _on_hub()


def public_of(word: object) -> PublicWeights | None:
    """The published weights that a word names: `resnet50.tv_in1k`, `timm/resnetv2_50.a1h_in1k`."""
    return (PUBLIC.get(word) or _on_hub().get(word)) if isinstance(word, str) else None


@cache
def _on_hub() -> dict[str, PublicWeights]:
    return {row.file: row for row in PUBLIC.values() if row.on_hub}


def file_of(name: str, progress: Progress | None = None) -> Path:
    """The weights file of a name, checked against its hash; public ones are fetched if they are not here."""
    if public := public_of(name):
        return fetch(public, progress or Console())
    known = index()
    if name not in known:
        raise _unknown(name, known)
    path = FOLDER / f"{name}.safetensors"
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; reinstall the package.") from None
    if found != known[name]:
        raise UserError(f"{path} is damaged: its sha256 is {found} and not {known[name]}; reinstall the package.")
    return path


def _unknown(name: str, shipped: dict[str, str]) -> UserError:
    training = name.partition(".")[2]
    others = [other for other in PUBLIC if other.partition(".")[2] == training]
    if others:
        return UserError(f"there is no pretrained {name!r}; with {training} there are {', '.join(others)}.")
    known = f"ships {', '.join(shipped)}" if shipped else "ships no trained networks"
    return UserError(f"there is no pretrained {name!r}: this version of the package {known}.")


def read_imagenet_classes() -> tuple[Names, Names]:
    """The names of ImageNet's 1,000 classes and their folders (wnids): the first word of each synset in WordNet 3.0."""
    path = Path(__file__).with_name("imagenet_classes.json")
    return read_classes(path.read_bytes(), 1000, path)


# --- public weights ---------------------------------------------------------------------------


def weights_dir() -> Path:
    """The folder of the cache for public weights."""
    return cache_dir() / "weights"


def find_public(public: PublicWeights, progress: Progress) -> Path | None:
    """A true copy of a published file on this machine: in our cache, or in that of torch.hub."""
    for path in _copies(public):
        digits = digits_in(path.name)
        if not digits or _sha256(path).startswith(digits):
            return path
        progress.note(f"skipped: {path} does not have the sha256 {digits}..., so it is damaged or another file.")
    return None


def _copies(public: PublicWeights) -> Iterator[Path]:
    """Files of the right name; those from the hub have the digits that were checked when they came, or none."""
    folder = weights_dir()
    if not public.on_hub:
        torch_home = os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"
        for place in (folder, Path(torch_home).expanduser() / "hub" / "checkpoints"):
            if (place / public.file).is_file():
                yield place / public.file
        return
    pattern = re.compile(rf"{re.escape(_stem(public))}(-[0-9a-f]{{8}})?\.safetensors")
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    yield from (folder / name for name in names if pattern.fullmatch(name))


def _stem(public: PublicWeights) -> str:
    return public.file.rpartition("/")[2]


def fetch(public: PublicWeights, progress: Progress) -> Path:
    """The file of public weights, from this machine or from its site; the hash in its name is checked either way.

    A file name on the hub carries no hash; there the sha256 is compared that the hub states.
    """
    from resnets.data.download import download_to, read_small

    if path := find_public(public, progress):
        return path
    folder, by_hand = weights_dir(), f"{_stem(public)}.safetensors" if public.on_hub else public.file
    try:
        target, digits = folder / by_hand, public.digits
        if public.on_hub:
            if not (found := _POINTER.search(read_small(public.pointer))):
                raise UserError(f"{public.pointer} does not state the sha256 of a file.")
            digits = found[1].decode()
            target = folder / f"{_stem(public)}-{digits[:8]}.safetensors"
        download_to(target, public.address, digits, progress)
        return target
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; set RESNETS_CACHE to a folder that you can write."
        ) from None
    except UserError as error:
        raise UserError(
            f"{public.name} is not in the cache and could not be fetched: {str(error).rstrip('.')}. Without a network, "
            f"get {public.official} elsewhere and put it into {folder} as {by_hand}; {ADDRESS} can name a mirror."
        ) from None


def _sha256(path: Path) -> str:
    from resnets.data.download import hash_file

    try:
        return hash_file(path, "sha256")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
