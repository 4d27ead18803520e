"""Download a file: resume it where it broke off, check its hash, and keep it only while it is used."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from resnets.cache import make_folder
from resnets.errors import UserError
from resnets.ownership import is_ours, open_plain
from resnets.progress import Progress

TIMEOUT = 8.0  # seconds without an answer or a byte
LARGEST = 1 << 30
_CHUNK = 1 << 18


@contextmanager
def download(url: str, folder: Path, md5: str, progress: Progress) -> Iterator[Path]:
    """The file at `url`, until the `with` block ends.

    A download that breaks off is resumed once, and otherwise by the next call: it stays in `folder` as NAME.part.
    """
    make_folder(folder)
    with _open_part(folder, url.rsplit("/", 1)[-1]) as (file, part):
        resumed = _size(file) > 0
        _fill(url, file, progress)
        if resumed and file_md5(part) != md5:  # what was there before may have been wrong
            file.truncate(0)
            _fill(url, file, progress)
        found = file_md5(part)
        try:
            if found != md5:
                raise UserError(f"{url} gave a file with md5 {found}, not {md5}; it was deleted.")
            yield part
        finally:
            file.truncate(0)


@contextmanager
def _open_part(folder: Path, name: str) -> Iterator[tuple[IO[bytes], Path]]:
    """NAME.part, or a temporary file where another process or user has that. An empty file is deleted at the end."""
    part = folder / f"{name}.part"
    try:
        file: IO[bytes] | None = os.fdopen(open_plain(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    except (OSError, UserError):
        file = None
    if file is None or not _lock(file):
        handle, temporary = tempfile.mkstemp(f".{name}.part", dir=folder)
        file, part = os.fdopen(handle, "r+b"), Path(temporary)
    with file:
        try:
            yield file, part
        finally:
            if not _size(file):
                part.unlink(missing_ok=True)


def _lock(file: IO[bytes]) -> bool:
    """Lock a file until it is closed; close it where another process or user has it, or has deleted it."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(file.fileno())
        if is_ours(found) and found.st_nlink == 1:
            return True
    file.close()
    return False


def file_md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _size(file: IO[bytes]) -> int:
    file.flush()
    return os.fstat(file.fileno()).st_size


def _fill(url: str, file: IO[bytes], progress: Progress) -> None:
    """Download what is missing, in at most two requests."""
    for last in (False, True):
        before = _size(file)
        try:
            return _transfer(url, file, progress)
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            if last or _size(file) <= before:
                raise UserError(f"{url} could not be fetched: {reason}.") from None
            progress.note(f"{url} broke off ({reason}); resuming at byte {_size(file):,}")


def _transfer(url: str, file: IO[bytes], progress: Progress) -> None:
    """Request what is missing of the file."""
    have = _size(file)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:  # 416: nothing is missing, or the part is too long; its hash will show
            raise
        return
    with answer:
        if not (answer.status == 206 and str(answer.headers["Content-Range"]).startswith(f"bytes {have}-")):
            have = 0
        length = str(answer.headers["Content-Length"])
        total = have + int(length) if length.isdigit() else None
        with progress.task(url, total) as advance:
            file.truncate(have)
            file.seek(have)
            advance(have)
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                advance(len(chunk))
                have += len(chunk)
                if have > LARGEST:
                    file.truncate(0)
                    raise UserError(f"{url} is far larger than expected; it was not downloaded.")
        file.flush()
        if total is not None and have < total:
            raise ConnectionError(f"cut off after {have:,} of {total:,} bytes")
