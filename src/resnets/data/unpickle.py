"""Read CIFAR's official Python batches, which are pickles, without executing code from the pickle.

A batch is a dict of lists, strings and one uint8 array. The few names that its pickle refers to are replaced by the
classes below, which can only hold bytes; any other name is refused. numpy's own reconstruction is not called either:
with a forged dtype it would read memory as Python objects.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from resnets.errors import UserError

OPERATIONS = 1 << 22  # in a pickle; the largest batch has a few hundred thousand
_MEMO = ("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET")


class _Array:
    """Stands for `numpy.core.multiarray._reconstruct`: an array, once its state is set."""

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Uint8):
            raise pickle.UnpicklingError("an array is not of uint8")
        self.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Uint8:
    """Stands for `numpy.dtype('u1')`, the only one in a batch."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1", "|u1", "uint8"):
            raise pickle.UnpicklingError(f"an array is of dtype {code!r}, not uint8")

    def __setstate__(self, state: object) -> None:
        pass  # byte order and alignment, which do not matter for single bytes


class _Latin1(bytes):
    """Stands for `_codecs.encode(text, "latin1")`, which is how Python 3 writes bytes in protocol 2."""

    room: ClassVar[list[int]]  # characters that may still be encoded, because a pickle can encode one text many times

    def __new__(cls, text: str, encoding: str = "latin1") -> _Latin1:
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"bytes are encoded as {encoding!r}")
        cls.room[0] -= len(text)
        if cls.room[0] < 0:
            raise pickle.UnpicklingError("it encodes more bytes than it has")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("bytes have no state")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only an argument of _reconstruct
    ("numpy", "dtype"): _Uint8,
}


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        latin1 = type("_Latin1", (_Latin1,), {"room": [len(data)]})
        self.stand_ins = {**_STAND_INS, ("_codecs", "encode"): latin1}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.stand_ins[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs") from None


def _require_bounded(data: bytes) -> None:
    """Refuse a pickle that makes the unpickler allocate far more than the file: by a memo index, or by a length.

    `genops` reads a pickle without building objects, and raises if a length goes beyond the end.
    """
    for number, (code, argument, _) in enumerate(pickletools.genops(data)):
        if number > OPERATIONS:
            raise pickle.UnpicklingError("it is longer than any batch")
        if code.name in _MEMO and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"it refers to the object {argument:,} of a file of {len(data):,} bytes")


def read_batch(data: bytes, where: str) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Read the pixels (N, 3072) and labels of a Python batch; of CIFAR-100 the fine labels."""
    try:
        _require_bounded(data)
        batch = _Reader(data).load()
        fields = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
        pixels = fields["data"].value
        labels = [int(v) for v in (fields["labels"] if "labels" in fields else fields["fine_labels"])]
    except KeyError as error:
        raise UserError(f"{where} is not a CIFAR batch: it has no {error}; replace it by the official file.") from None
    except Exception as error:  # a broken or forged pickle can raise anything
        reason = " ".join(str(error).split())
        raise UserError(f"{where} is not a CIFAR batch: {reason}; replace it by the official file.") from None
    return pixels, labels
