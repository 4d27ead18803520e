"""Write files atomically: to a temporary file, flushed to disk, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from resnets.errors import UserError

_KEPT = 40  # characters of the name in the temporary name, which must not be too long


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a whole file, or leave what was there before."""
    with open_atomically(path, mode) as file:
        file.write(data)


@contextmanager
def open_atomically(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a temporary file, which gets its name when the block ends, and is deleted after an error.

    A link at the path is replaced. `mode` is that of `os.open`, so the umask applies.
    """
    if not path.name or os.path.isdir(path):  # False if the name is too long
        raise UserError(f"cannot write {path}: it is a folder; name a file.")
    half = path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(4)}.part")
    try:
        with open(half, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):  # already renamed if all went well
            half.unlink()


def make_folder_of(path: Path) -> None:
    """Create the folder of a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> UserError:
    """The error for a failed write."""
    if error.errno == errno.ENOSPC:
        return UserError(
            f"cannot write {path}: the disk is full; earlier files are intact, so free some space and try again."
        )
    return UserError(f"cannot write {path}: {error.strerror or error}; earlier files are intact.")


def flush_folder(folder: Path) -> None:
    """Make the rename durable, if the system can open a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
