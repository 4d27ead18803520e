"""Reading the official Python batches, which are pickles, without running what a pickle can run.

A batch is a dict of lists, strings and one uint8 array. The few names that its pickle refers to are met
with the stand-ins below, which can hold bytes and do nothing else; any other name is refused. numpy's own
reconstruction is not called either: with a forged dtype it would read memory as Python objects.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from resnets.errors import UserError

OPERATIONS = 1 << 22  # of a pickle; the largest batch has some hundred thousand
_PLACED = ("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET")


class _Array:
    """What `numpy.core.multiarray._reconstruct` would give: an array, once its state is set."""

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Uint8):
            raise pickle.UnpicklingError("an array is not of uint8")
        self.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Uint8:
    """`numpy.dtype('u1')`; there is no other in a batch."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1", "|u1", "uint8"):
            raise pickle.UnpicklingError(f"an array is of dtype {code!r}, not uint8")

    def __setstate__(self, state: object) -> None:
        pass  # byte order and alignment, which one byte has not


class _Latin1(bytes):
    """`_codecs.encode(text, "latin1")`: how Python 3 writes bytes into a pickle of protocol 2."""

    room: ClassVar[list[int]]  # characters that the rest of a pickle may encode: one text can be encoded many times

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
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct
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


def _require_honest(data: bytes) -> None:
    """Refuse what makes an unpickler take memory for nothing: a place in its memo, or a length, beyond the file.

    `genops` reads a pickle without building anything, and finds that a length is more than what follows.
    """
    for number, (code, argument, _) in enumerate(pickletools.genops(data)):
        if number > OPERATIONS:
            raise pickle.UnpicklingError("it is longer than any batch")
        if code.name in _PLACED and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"it refers to the object {argument:,} of a file of {len(data):,} bytes")


def read_batch(data: bytes, where: str) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Pixels (N, 3072) and labels of a Python batch; fine labels where there are two kinds."""
    try:
        _require_honest(data)
        batch = _Reader(data).load()
        fields = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
        pixels = fields["data"].value
        labels = [int(v) for v in (fields["labels"] if "labels" in fields else fields["fine_labels"])]
    except KeyError as error:
        raise UserError(f"{where} is not a CIFAR batch: it has no {error}; replace it by the official file.") from None
    except Exception as error:  # a pickle that is broken or forged may fail in any way
        said = " ".join(str(error).split())
        raise UserError(f"{where} is not a CIFAR batch: {said}; replace it by the official file.") from None
    return pixels, labels
