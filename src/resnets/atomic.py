"""Files that are whole or not there at all: written aside, flushed to the disk, renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from resnets.errors import UserError

_KEPT = 40  # characters of a name in the name of its temporary file, so that this one is never too long


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """All of the data under that name, or nothing new and whatever stood there before."""
    with open_atomically(path, mode) as file:
        file.write(data)


@contextmanager
def open_atomically(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write to, which gets its name when the block ends; after an error it is gone.

    A link at the path is replaced. `mode` says who may read and write the file, less what the umask forbids.
    """
    if not path.name or os.path.isdir(path):  # of a name that is too long, false
        raise UserError(f"cannot write {path}: it is a folder; name a file.")
    half = path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(4)}.part")
    try:
        with open(half, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):  # gone already if all went well
            half.unlink()


def make_folder_of(path: Path) -> None:
    """The folder that a file is to be written to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> UserError:
    """What a failed write means for the user."""
    if error.errno == errno.ENOSPC:
        return UserError(
            f"cannot write {path}: the disk is full; earlier files are intact, so make room and try again."
        )
    return UserError(f"cannot write {path}: {error.strerror or error}; earlier files are intact.")


def _flush_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
