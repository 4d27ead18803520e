"""Checkpoints that survive a kill at any moment: written to a temporary file, flushed, renamed, verified on reading.

A file's name ends in the start of the SHA-256 of its bytes, so a truncated or overwritten file is recognised without a
second file that could be lost. The last two are kept.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.runs import CHECKPOINT_NAME

KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]  # plain data


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; of the others only the one before it is kept."""
    metadata = {"step": str(checkpoint.step), "state": json.dumps(checkpoint.state)}
    data = safetensors.torch.save(checkpoint.tensors, metadata)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{checkpoint.step:08d}-{_digest(data)}.safetensors"
    write_atomically(path, data)
    before = [old for old in list_checkpoints(folder) if _step(old) < checkpoint.step]
    for old in set(list_checkpoints(folder)) - {path, *before[: KEEP - 1]}:
        old.unlink(missing_ok=True)
    for left in folder.glob(".*.part"):  # of a process that was killed while it wrote
        left.unlink(missing_ok=True)
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first, readable or not; files with other names are none."""
    paths = (path for path in folder.glob("step-*.safetensors") if CHECKPOINT_NAME.fullmatch(path.name))
    return sorted(paths, key=lambda path: (_step(path), path.name), reverse=True)


def newest(
    folder: Path,
    warn: Callable[[str], None] = warnings.warn,
    find_fault: Callable[[Checkpoint], str | None] = lambda checkpoint: None,
) -> Checkpoint:
    """The newest checkpoint that is whole and without fault; others are skipped with a warning."""
    paths = list_checkpoints(folder)
    what, advice = "it has no checkpoint", "delete the folder to start over."
    for path in paths:
        try:
            checkpoint = _read(path)
        except _DamagedError as error:
            what = f"none of its {len(paths)} checkpoints is whole"
            warn(f"{path} {error}; using the checkpoint before it.")
            continue
        fault = find_fault(checkpoint)
        if fault is None:
            return checkpoint
        what = f"{fault}, and no older checkpoint is of use"
        advice = "restore the file or delete the folder to start over."
        if path != paths[-1]:
            warn(f"{fault}; using the checkpoint before step {checkpoint.step:,}.")
    raise UserError(f"the run in {folder.parent} cannot go on: {what}; {advice}")


class _DamagedError(Exception):
    """What is wrong with a file."""


def _read(path: Path) -> Checkpoint:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _DamagedError(f"cannot be read ({error.strerror})") from None
    if path.stem.rpartition("-")[2] != _digest(data):
        raise _DamagedError("is damaged (its checksum does not match)")
    try:
        tensors = safetensors.torch.load(data)  # checks the header
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        return Checkpoint(int(header["step"]), tensors, json.loads(header["state"]))
    except (safetensors.SafetensorError, ValueError, KeyError):
        raise _DamagedError("is no checkpoint") from None


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
