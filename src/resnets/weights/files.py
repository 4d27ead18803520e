"""Read and write weights files: reading never executes code, writing is atomic."""

from __future__ import annotations

import io
import json
import os
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from resnets.atomic import write_atomically
from resnets.bounded import read_bounded
from resnets.errors import UserError

AnyPath = str | os.PathLike[str]

WRAPPERS = ("state_dict", "model")  # under which training scripts store the weights beside other things
PREFIXES = ("module.", "_orig_mod.")  # that DataParallel and torch.compile put before every name

UNPACKED = 1 << 26  # bytes that a torch file may have more when it is unpacked, and in the pickle that describes it
_LEGACY_PICKLES = 5  # before the tensors of a file of torch before 1.6
_COSTLY = ("bytearray", "_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor")


@dataclass(frozen=True)
class WeightsFile:
    """The tensors of a file, without wrapper and prefix."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str]  # of a safetensors header
    wrapper: str = ""
    prefix: str = ""


def read(path: AnyPath) -> WeightsFile:
    """The tensors of a safetensors file or of a torch file that holds a state dict."""
    path = Path(path)
    metadata: dict[str, str] = {}
    wrapper = ""
    if _is_safetensors(path):
        with _open_safetensors(path) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it has no __iter__
    else:
        tensors, wrapper = _state_dict(path, _load_torch(path))
    tensors, prefix = _without_prefix(tensors)
    return WeightsFile(path, tensors, metadata, wrapper, prefix)


def read_metadata(path: AnyPath) -> dict[str, str]:
    """The metadata of a safetensors header, without its tensors; a torch file has none."""
    path = Path(path)
    if not _is_safetensors(path):
        return {}
    with _open_safetensors(path) as file:
        return file.metadata() or {}


def write(path: AnyPath, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically."""
    write_atomically(Path(path), _sort_header(safetensors.torch.save(dict(tensors), dict(metadata))))


def _sort_header(data: bytes) -> bytes:
    """The same file with its header in order: safetensors writes the metadata in a new one each time."""
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the tensors stay aligned
    return b"".join((len(header).to_bytes(8, "little"), header, memoryview(data)[8 + size :]))


def some(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 7 more`."""
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


# --- opening the two kinds of file ------------------------------------------------


def _is_safetensors(path: Path) -> bool:
    """Whether it is safetensors: eight bytes of length, then a JSON object."""
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not a file of weights.") from None
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error
    if not head:
        raise UserError(f"{path} is empty.")
    return head.endswith(b"{") and len(head) == 9


@contextmanager
def _open_safetensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file; damage raises a `UserError`."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is a damaged safetensors file: {error}.") from error


def _load_torch(path: Path) -> object:
    """What a torch file holds, if that is made of tensors and plain containers; nothing in it is executed."""
    try:
        _require_honest(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd pickles, which are refused below or of no matter
            return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        if found := re.search(r"GLOBAL (\S+)", str(error)):
            raise UserError(
                f"{path} holds a Python object ({found[1]}), and loading one can run code: "
                "save the state_dict alone, with plain numbers beside it at most."
            ) from error
        raise UserError(f"{path} is neither a safetensors file nor a torch file, or it is damaged.") from error


def _require_honest(path: Path) -> None:
    """Refuse a torch file that would take far more memory than it has bytes, before torch reads it.

    It is an archive with a pickle and the tensors' bytes, which torch does not compress, or five pickles and the bytes.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if file.read(4) != b"PK\x03\x04":
            file.seek(0)
            for _ in range(_LEGACY_PICKLES):
                _require_honest_pickle(file, path)
            return
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > size + UNPACKED:
                raise UserError(
                    f"{path} has {size:,} bytes and unpacks to {unpacked:,}, and torch does not compress weights: "
                    "save them again."
                )
            for member in archive.infolist():
                if member.filename.rpartition("/")[2] == "data.pkl":
                    with archive.open(member) as stream:
                        _require_honest_pickle(io.BytesIO(read_bounded(stream, UNPACKED, path)), path)


def _require_honest_pickle(stream: IO[bytes], path: Path) -> None:
    """Refuse a pickle whose calls would allocate far more memory than the file has; nothing is executed here."""
    longest = calls = 0
    encodes = False
    try:
        for code, argument, _ in pickletools.genops(stream):
            calls += code.name == "REDUCE"
            word = argument.rpartition(" ")[2] if isinstance(argument, str) else ""
            longest = max(longest, len(argument) if isinstance(argument, str | bytes) else 0)
            encodes |= word == "encode"
            if word in _COSTLY or (encodes and longest * calls > UNPACKED):  # one text, encoded many times
                what = word if word in _COSTLY else "a long text"
                raise UserError(f"{path} holds {what}, which no weights need: save the state_dict alone.")
    except UserError:
        raise
    except Exception:  # it is damaged there, or it ends there: torch does not come further
        return


# --- wrappers and prefixes -----------------------------------------------------------


def _state_dict(path: Path, content: object) -> tuple[dict[str, Tensor], str]:
    """The tensors by name, and the key under which they were stored."""
    wrapper = ""
    if isinstance(content, Mapping):
        wrapper = next((word for word in WRAPPERS if isinstance(content.get(word), Mapping)), "")
        content = content[wrapper] if wrapper else content
    if not isinstance(content, Mapping):
        raise UserError(f"{path} holds a {type(content).__name__}, not the state_dict of a network.")
    if not any(isinstance(value, Tensor) for value in content.values()):
        held = f"only {some(map(str, content))}" if content else "nothing"
        raise UserError(f"{path} holds {held}, where the tensors of a state_dict were expected.")
    if wrong := [str(k) for k, v in content.items() if not isinstance(k, str) or not isinstance(v, Tensor)]:
        raise UserError(f"{path} holds {len(wrong)} of what is no tensor with a name ({some(wrong)}).")
    return dict(content), wrapper


def _without_prefix(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """The tensors without a common prefix of their names, and the prefix."""
    stripped = ""
    while prefix := next((p for p in PREFIXES if tensors and all(name.startswith(p) for name in tensors)), ""):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        stripped += prefix
    return tensors, stripped
