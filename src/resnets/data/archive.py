"""Read files of a tar archive without unpacking it."""

from __future__ import annotations

import tarfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath, PureWindowsPath

from resnets.bounded import TAR_ERRORS, open_tar
from resnets.errors import UserError

LARGEST = 1 << 28  # bytes in a member; the largest of CIFAR has 155 million
UNPACKED = 1 << 28  # bytes in an archive; CIFAR's have 186 million
MEMBERS = 1000


def read_archive(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Read the `wanted` members. An archive with a link, an absolute name or another suspicious member is refused."""
    found: dict[str, bytes] = {}
    try:
        with open_tar(path, UNPACKED) as tar:
            for number, member in enumerate(tar):
                if fault := _fault(member, number):
                    raise UserError(f"{path} is refused: its member {member.name!r} {fault}.")
                if member.name in wanted and (stream := tar.extractfile(member)):
                    found[member.name] = stream.read()
    except TAR_ERRORS as error:
        raise UserError(f"{path} cannot be read as a tar archive ({error}); fetch it again.") from None
    if missing := sorted(set(wanted) - set(found)):
        raise UserError(f"{path} lacks {', '.join(missing)}; fetch it again.")
    return found


def _fault(member: tarfile.TarInfo, number: int) -> str:
    name = member.name
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive or name.startswith("\\"):
        return "has an absolute name"
    if ".." in name.replace("\\", "/").split("/"):
        return "has .. in its name"
    if not (member.isreg() or member.isdir()) or member.issparse():
        return "is a link, a device or another special file"
    if member.size > LARGEST or number >= MEMBERS:
        return "makes the archive hold more than a data set has"
    return ""
