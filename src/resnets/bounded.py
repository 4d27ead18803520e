"""Read compressed files up to a limit: a small file can unpack to more than there is memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from resnets.errors import UserError

_PACKERS: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open, b"BZh": bz2.open}
TAR_ERRORS = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)  # raised by a broken archive


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class BoundedReader:
    """A stream of at most `most` bytes; more of them raise a `UserError` that names `where`."""

    def __init__(self, stream: Readable, most: int, where: object) -> None:
        self.stream, self.left, self.most, self.where = stream, most, most, where

    def read(self, size: int) -> bytes:
        data = self.stream.read(min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise UserError(f"{self.where} unpacks to more than {self.most:,} bytes; get a true copy.")
        return data


def read_bounded(stream: Readable, most: int, where: object) -> bytes:
    """Read all bytes of a stream, at most `most`."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise UserError(f"{where} has more than {most:,} bytes; get a true copy.")
    return data


@contextmanager
def open_tar(path: Path, most: int) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, compressed or not, of at most `most` bytes with its headers."""
    with path.open("rb") as file:
        head = file.read(6)
    unpack = next((packer for mark, packer in _PACKERS.items() if head.startswith(mark)), lambda path: path.open("rb"))
    with unpack(path) as stream:
        reader = BoundedReader(stream, most, path)
        with tarfile.open(fileobj=reader, mode="r|") as tar:  # type: ignore[call-overload]
            yield tar
