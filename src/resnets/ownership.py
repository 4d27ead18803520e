"""Check that only this user can change a file or folder, and open files without following links.

A file is ours if we own it and nobody else may write it. A folder is ours if, in addition, nobody else may rename
anything in the folders above it, and so replace it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from resnets.errors import UserError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# Not all of these exist on Windows. O_NONBLOCK, because opening a pipe would wait for its other end.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def make_private_folder(folder: Path) -> Path:
    """Create a folder that is ours, if it does not exist, and return its full path; `UserError` if it is not ours."""
    folder = Path(os.path.abspath(folder))
    for place in (*reversed(folder.parents), folder):
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            place.mkdir(0o700 if place == folder else 0o755, exist_ok=True)  # even if the umask lets others write
            found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        if fault := _fault(found, inside=place != folder):
            raise UserError(f"{place} {fault}.")
    return folder


def check_private_folder(folder: Path) -> str:
    """Why a folder is not ours, or nothing; what does not exist yet would be ours."""
    folder = Path(os.path.abspath(folder))
    for place in (*reversed(folder.parents), folder):
        try:
            found = os.lstat(place)
        except OSError:
            return ""
        if fault := _fault(found, inside=place != folder):
            return f"{place} {fault}"
    return ""


def _fault(found: os.stat_result, inside: bool) -> str:
    """Why a folder is not ours; one above it (`inside`) may be root's, or sticky such as /tmp."""
    if not hasattr(os, "getuid"):
        return "is on a system without file owners"
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link (name its target instead)"
    if found.st_uid not in ((os.getuid(), 0) if inside else (os.getuid(),)):
        return "belongs to another user"
    if found.st_mode & _OTHERS and not (inside and found.st_mode & stat.S_ISVTX):
        return "is writable by other users (chmod go-w changes that)"
    return ""


def is_ours(found: os.stat_result) -> bool:
    """Whether a regular file is ours or root's; on systems without file owners, every file is."""
    if not hasattr(os, "getuid"):
        return stat.S_ISREG(found.st_mode)
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.getuid(), 0) and not found.st_mode & _OTHERS


def open_plain(path: Path, flags: int, mode: int = 0o666) -> int:
    """`os.open` for a regular file; does not follow a link, or wait for a pipe."""
    try:
        handle = os.open(path, flags | _PLAIN, mode)
    except OSError as error:
        if error.errno == errno.ELOOP or path.is_symlink():
            raise UserError(f"{path} is a symbolic link, which is not followed; remove it.") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path} is not a regular file; remove it.")
    return handle


def read_ours(path: Path, *, secret: bool = False) -> bytes:
    """Read a file that is ours; if `secret`, nobody else may read it. The open file is checked, not the path."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        found = os.fstat(file.fileno())
        if not is_ours(found) or (secret and stat.S_IMODE(found.st_mode) & 0o077):
            raise UserError(f"{path} belongs to another user, or others may access it; remove it.")
        return file.read()
