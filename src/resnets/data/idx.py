"""The IDX form of MNIST and its like: a header with the sizes, then bytes; packed by gzip or not."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib

import numpy as np
import numpy.typing as npt

from resnets.errors import UserError

LARGEST = 1 << 28  # bytes; that a file of some bytes can be unpacked to more is no reason to do it


def read_idx(data: bytes, where: str) -> npt.NDArray[np.uint8]:
    """The unsigned bytes of a file in their shape."""
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(LARGEST + 1)
        zeros, kind, sides = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{sides}I", data, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise UserError(f"{where} is broken: {error}.") from None
    start = 4 + 4 * sides
    if (zeros, kind) != (0, 8) or len(data) > LARGEST or len(data) - start != math.prod(shape):
        raise UserError(f"{where} is not an IDX file of bytes, or is not whole; replace it by a true copy.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
