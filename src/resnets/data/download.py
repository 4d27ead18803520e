"""A file from the network: resumed where it broke off, checked by its hash, kept only when whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import secrets
import time
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
ATTEMPTS = 8  # each must bring more of the file than there was
STALE = 60.0  # seconds after which a part that nobody writes to is free
LARGEST = 1 << 30
_CHUNK = 1 << 18


@contextmanager
def download(url: str, folder: Path, md5: str, progress: Progress) -> Iterator[Path]:
    """The file at `url`, for the time of a `with`; what a broken download leaves in `folder` is taken up again.

    Processes that fetch at the same time do not meet: each has its own part, claimed by renaming it.
    """
    name = url.rsplit("/", 1)[-1]
    make_folder(folder)
    part = _claim(folder, name)
    try:
        resumed = part.stat().st_size > 0
        _fill(url, part, progress)
        if resumed and file_md5(part) != md5:  # the part taken up may have been wrong
            _empty(part)
            _fill(url, part, progress)
        if (found := file_md5(part)) != md5:
            _empty(part)
            raise UserError(f"{url} gave a file with md5 {found}, not {md5}; it was thrown away.")
    except BaseException:
        with suppress(OSError):  # it may be gone
            if part.lstat().st_size:
                os.replace(part, folder / f"{name}.part")
            else:
                part.unlink()
        raise
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def file_md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _claim(folder: Path, name: str) -> Path:
    """A part of our own: one that an ended or a dead process of ours has left, or an empty one."""
    own = folder / f"{name}.part.{os.getpid()}-{secrets.token_hex(8)}"
    for left in sorted(folder.glob(f"{name}.part*")):
        try:
            if not (_is_own(left.lstat()) and os.access(left, os.R_OK | os.W_OK)):
                continue
            if left.suffix == ".part" or time.time() - left.stat().st_mtime > STALE:
                os.rename(left, own)
                return own
        except FileNotFoundError:
            pass  # another process was quicker
    os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return own


def _is_own(found: os.stat_result) -> bool:
    """Whether nobody else has made this file, can change it, or knows it by another name."""
    return is_ours(found) and found.st_nlink == 1


def _open(part: Path) -> IO[bytes]:
    """A part to write to. The folder may be shared: what lies there now need not be what lay there before."""
    file = os.fdopen(open_plain(part, os.O_RDWR), "r+b")
    if not _is_own(os.fstat(file.fileno())):
        file.close()
        raise UserError(f"{part} is not the file that we put there; set RESNETS_CACHE to a folder of your own.")
    return file


def _empty(part: Path) -> None:
    with _open(part) as file:
        file.truncate(0)


def _fill(url: str, part: Path, progress: Progress) -> None:
    for attempt in range(ATTEMPTS):
        before = part.stat().st_size
        try:
            return _transfer(url, part, progress)
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            if part.stat().st_size <= before or attempt == ATTEMPTS - 1:
                raise UserError(f"{url} could not be fetched: {reason}.") from None
            progress.note(f"{url} broke off ({reason}); going on from byte {part.stat().st_size:,}")


def _transfer(url: str, part: Path, progress: Progress) -> None:
    """One request for what is missing of the file."""
    have = part.stat().st_size
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:  # nothing is missing, or the part is longer than the file: the hash tells
            raise
        return
    with answer:
        if not (answer.status == 206 and str(answer.headers["Content-Range"]).startswith(f"bytes {have}-")):
            have = 0
        length = str(answer.headers["Content-Length"])
        total = have + int(length) if length.isdigit() else None
        with _open(part) as file, progress.task(url, total) as advance:
            file.truncate(have)
            file.seek(have)
            advance(have)
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                advance(len(chunk))
                have += len(chunk)
                if have > LARGEST:
                    file.truncate(0)
                    raise UserError(f"{url} is far larger than it should be; it was not fetched.")
        if total is not None and have < total:
            raise ConnectionError(f"cut off after {have:,} of {total:,} bytes")
