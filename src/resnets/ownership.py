"""Files and folders that are ours alone, and files that are opened without following links.

A file is ours alone if we own it and nobody else may write it; a folder, if that holds for it and nobody else may put
another in its place, which whoever may rename in a folder on the way to it can do.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from resnets.errors import UserError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# Not there on every system, as Windows. Without waiting: who opens a pipe would wait for its other end.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def make_private_folder(folder: Path) -> Path:
    """A folder that is ours alone, by its full name, made if need be; `UserError` and nothing made where it is not."""
    folder = Path(os.path.abspath(folder))
    for place in (*reversed(folder.parents), folder):
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            place.mkdir(0o700 if place == folder else 0o755, exist_ok=True)  # whatever the umask lets others write
            found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        if fault := _fault(found, inside=place != folder):
            raise UserError(f"{place} {fault}.")
    return folder


def _fault(found: os.stat_result, inside: bool) -> str:
    """Why a folder is not ours alone; one that we only go through may be root's, or sticky as /tmp is."""
    if not hasattr(os, "getuid"):
        return "is on a system that does not say who may write it"
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link (name the folder that it leads to)"
    if found.st_uid not in ((os.getuid(), 0) if inside else (os.getuid(),)):
        return "belongs to another user"
    if found.st_mode & _OTHERS and not (inside and found.st_mode & stat.S_ISVTX):
        return "can be written by other users (chmod go-w changes that)"
    return ""


def is_ours(found: os.stat_result) -> bool:
    """Whether a regular file is ours alone, or root's; where files have no such owners, each is taken for ours."""
    if not hasattr(os, "getuid"):
        return stat.S_ISREG(found.st_mode)
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.getuid(), 0) and not found.st_mode & _OTHERS


def open_plain(path: Path, flags: int, mode: int = 0o666) -> int:
    """`os.open` for a regular file, which neither follows a link at the path nor waits at a pipe."""
    try:
        handle = os.open(path, flags | _PLAIN, mode)
    except OSError as error:
        if error.errno == errno.ELOOP or path.is_symlink():
            raise UserError(f"{path} is a symbolic link, which is not followed; remove it.") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path} is no regular file; remove it.")
    return handle


def read_ours(path: Path, *, secret: bool = False) -> bytes:
    """A file that is ours alone, and that nobody else may read if it is secret; what is read is what was looked at."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        found = os.fstat(file.fileno())
        if not is_ours(found) or (secret and stat.S_IMODE(found.st_mode) & 0o077):
            raise UserError(f"{path} belongs to other users, or is open to them; remove it.")
        return file.read()
