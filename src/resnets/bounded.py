"""Reading no more of a file than it may hold: some bytes can unpack to more than there is memory."""

from __future__ import annotations

from typing import Protocol

from resnets.errors import UserError


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class BoundedReader:
    """A stream that gives at most `most` bytes; where there are more, it ends in a `UserError` that names `where`."""

    def __init__(self, stream: Readable, most: int, where: object) -> None:
        self.stream, self.left, self.most, self.where = stream, most, most, where

    def read(self, size: int) -> bytes:
        data = self.stream.read(min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise UserError(f"{self.where} unpacks to more than {self.most:,} bytes; get a true copy.")
        return data


def read_bounded(stream: Readable, most: int, where: object) -> bytes:
    """All bytes of a stream, if they are at most so many."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise UserError(f"{where} has more than {most:,} bytes; get a true copy.")
    return data
