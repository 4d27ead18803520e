"""Read IDX files, the format of MNIST: a header with the shape, then bytes; gzipped or not."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib

import numpy as np
import numpy.typing as npt

from resnets.bounded import read_bounded
from resnets.errors import UserError

LARGEST = 1 << 26  # bytes of a file, unpacked; the largest that is read here has 47 million


def read_idx(data: bytes, where: str) -> npt.NDArray[np.uint8]:
    """Read the array of unsigned bytes in a file."""
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as file:
                data = read_bounded(file, LARGEST, f"{where}, unpacked,")
        zeros, kind, sides = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{sides}I", data, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise UserError(f"{where} is broken: {error}.") from None
    start = 4 + 4 * sides
    if (zeros, kind) != (0, 8) or not 1 <= sides <= 3 or len(data) - start != math.prod(shape):
        raise UserError(f"{where} is not an IDX file of bytes, or is incomplete; replace it by a true copy.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
