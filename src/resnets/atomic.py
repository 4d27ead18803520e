"""Files that are whole or not there at all: written aside, flushed to the disk, renamed."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from resnets.errors import UserError


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """All of the data under that name, or nothing new and whatever stood there before; a link there is replaced.

    `mode` says who may read and write the file, less what the umask forbids.
    """
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(half, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):  # gone already if all went well
            half.unlink()


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
