"""Download a file: resume it where it broke off, check its hash, and keep it, or only while it is used."""

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

from resnets.atomic import flush_folder
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
        _complete(url, file, part, ("md5", md5), progress)
        try:
            yield part
        finally:
            file.truncate(0)


def download_to(target: Path, url: str, sha256: str, progress: Progress) -> None:
    """Download a file to keep; `sha256` is its hash, or the first digits of that.

    A download that breaks off is resumed as in `download`. `target` has the whole file or is not changed.
    """
    make_folder(target.parent)
    with _open_part(target.parent, target.name) as (file, part):
        _complete(url, file, part, ("sha256", sha256), progress)
        part.chmod(0o644)  # a cache may be shared
        os.fsync(file.fileno())
        part.replace(target)
        flush_folder(target.parent)


def read_small(url: str, most: int = 1 << 12) -> bytes:
    """The first `most` bytes of a small file."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            return answer.read(most)
    except (OSError, http.client.HTTPException) as error:
        raise _fetch_error(url, error) from None


def _complete(url: str, file: IO[bytes], part: Path, expected: tuple[str, str], progress: Progress) -> None:
    """Download what is missing and check the hash: its kind, and how it begins."""
    kind, digits = expected
    resumed = _size(file) > 0
    _fill(url, file, progress)
    if resumed and not hash_file(part, kind).startswith(digits):  # what was there before may have been wrong
        file.truncate(0)
        _fill(url, file, progress)
    if not (found := hash_file(part, kind)).startswith(digits):
        file.truncate(0)
        raise UserError(f"{url} gave a file with {kind} {found}, not {digits}; it was deleted.")


@contextmanager
def _open_part(folder: Path, name: str) -> Iterator[tuple[IO[bytes], Path]]:
    """NAME.part, or a temporary file where another process or user has that. An empty file is deleted at the end."""
    part = folder / f"{name}.part"
    try:
        file: IO[bytes] | None = os.fdopen(open_plain(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    except (OSError, UserError):
        file = None
    if file is None or not _lock(file, part):
        handle, temporary = tempfile.mkstemp(f".{name}.part", dir=folder)
        file, part = os.fdopen(handle, "r+b"), Path(temporary)
    with file:
        try:
            yield file, part
        finally:
            if not _size(file):
                part.unlink(missing_ok=True)


def _lock(file: IO[bytes], part: Path) -> bool:
    """Lock a file until it is closed; close it where another process or user has it, or has moved it."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(file.fileno())
        if is_ours(found) and found.st_nlink == 1 and os.path.samestat(found, os.lstat(part)):
            return True
    file.close()
    return False


def file_md5(path: Path) -> str:
    return hash_file(path, "md5")


def hash_file(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
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
            if last or _size(file) <= before:
                raise _fetch_error(url, error) from None
            progress.note(f"{url} broke off ({_reason(error)}); resuming at byte {_size(file):,}")


def _fetch_error(url: str, error: Exception) -> UserError:
    return UserError(f"{url} could not be fetched: {_reason(error)}.")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)) or type(error).__name__


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
