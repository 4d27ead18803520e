"""Unpack ImageNet's official archives to OUT/train/n01440764/*.JPEG and OUT/val/n01440764/*.JPEG.

Each class folder of the training images, and the folder of all validation images, is renamed to its final name when it
is complete, so that a killed command resumes. The devkit says how many images each class has, and the class of each
validation image.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from resnets.errors import UserError
from resnets.ownership import open_plain
from resnets.progress import Advance, Console, Progress

META = "data/meta.mat"
TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"
_WNID = re.compile(r"n[0-9]{8}")
_LARGEST = 1 << 26  # bytes in an image, and in a file of the devkit


@dataclass(frozen=True)
class Devkit:
    counts: dict[str, int]  # training images of each class by wnid
    truth: list[str]  # the wnids of the validation images in their order


def prepare(
    train: Path | None, val: Path | None, devkit: Path, out: Path, progress: Progress | None = None
) -> dict[str, int]:
    """Unpack the archives that are given; returns the number of images of each part."""
    if train is None and val is None:
        raise UserError("give --train, --val or both: the archives to unpack.")
    progress = progress or Console()
    known = read_devkit(devkit)
    done = {}
    if train is not None:
        with progress.task("unpacking training images", sum(known.counts.values())) as advance:
            done["train"] = _unpack_train(train, known.counts, out / "train", advance)
    if val is not None:
        with progress.task("unpacking validation images", len(known.truth)) as advance:
            done["val"] = _unpack_val(val, known.truth, out / "val", advance)
    return done


# --- the devkit -------------------------------------------------------------------------------


def read_devkit(path: Path) -> Devkit:
    """Read the classes, and the class of each validation image."""
    files: dict[str, bytes] = {}
    with _open_archive(path) as tar:
        for member in tar:
            wanted = next((name for name in (META, TRUTH) if member.name.endswith("/" + name)), None)
            if wanted and member.isreg() and member.size <= _LARGEST and (stream := tar.extractfile(member)):
                files[wanted] = stream.read()
    for name in (META, TRUTH):
        if name not in files:
            raise UserError(f"{path} is not ImageNet's devkit: it has no {name}.")
    numbers, counts = _read_meta(files[META], path)
    try:
        truth = [numbers[int(line)] for line in files[TRUTH].split()]
    except (ValueError, KeyError):
        raise UserError(f"{path} is broken: {TRUTH} must have the number of a class in each line.") from None
    return Devkit(counts, truth)


def _read_meta(data: bytes, path: Path) -> tuple[dict[int, str], dict[str, int]]:
    """The wnid of each number, and the training images of each wnid, without inner nodes of WordNet."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise UserError("reading the devkit's meta.mat needs the extra: pip install 'resnets[imagenet]'.") from None
    try:
        rows = loadmat(io.BytesIO(data), squeeze_me=True)["synsets"]
        leaves = [row for row in rows if int(row["num_children"]) == 0]
        numbers = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}
        counts = {str(row["WNID"]): int(row["num_train_images"]) for row in leaves}
    except Exception as error:  # a broken file can raise anything
        raise UserError(f"{path} is broken: its {META} cannot be read ({error}).") from None
    if not counts or not all(_WNID.fullmatch(wnid) for wnid in counts):
        raise UserError(f"{path} is broken: its {META} lists no classes by wnid.")
    return numbers, counts


# --- the images -------------------------------------------------------------------------------


def _unpack_train(path: Path, counts: dict[str, int], out: Path, advance: Advance) -> int:
    """Unpack an archive that has an archive for each class."""
    out.mkdir(parents=True, exist_ok=True)
    seen = set()
    with _open_archive(path, "r:") as tar:
        for member in tar:
            wnid = member.name.removesuffix(".tar")
            if wnid not in counts or not member.isreg() or wnid in seen:
                raise UserError(f"{path} is not ImageNet's: {member.name!r} is not a class of the devkit.")
            seen.add(wnid)
            if not (out / wnid).is_dir():
                _unpack_class(tar, member, out, counts[wnid])
            advance(counts[wnid])
    if missing := sorted(set(counts) - seen):
        raise UserError(f"{path} lacks {len(missing)} of {len(counts)} classes, as {missing[0]}; get it again.")
    return sum(counts.values())


def _unpack_class(tar: tarfile.TarFile, member: tarfile.TarInfo, out: Path, count: int) -> None:
    wnid = member.name.removesuffix(".tar")
    half = out / f".{wnid}.part"
    _make_folder(half)
    name = re.compile(wnid + r"_[0-9]{1,8}\.JPEG")
    with _remove_if_refused(half):
        with tarfile.open(fileobj=tar.extractfile(member), mode="r:") as inner:
            written = sum(_write(inner, image, half / image.name, name) for image in inner)
        if written != count:
            raise UserError(f"{tar.name!s} has {written} images of {wnid}, and the devkit says {count}; get it again.")
    half.replace(out / wnid)


def _unpack_val(path: Path, truth: list[str], out: Path, advance: Advance) -> int:
    """Unpack an archive of images into the folders of their classes."""
    if out.is_dir():
        advance(len(truth))
        return len(truth)
    half = out.with_name(f".{out.name}.part")
    half.parent.mkdir(parents=True, exist_ok=True)
    for folder in (half, *(half / wnid for wnid in set(truth))):
        _make_folder(folder)
    name = re.compile(r"ILSVRC2012_val_([0-9]{8})\.JPEG")
    found: Counter[int] = Counter()
    with _remove_if_refused(half), _open_archive(path, "r:") as tar:
        for member in tar:
            number = int(match[1]) if (match := name.fullmatch(member.name)) else 0
            if not 1 <= number <= len(truth):
                raise UserError(f"{path} is not ImageNet's: it has {member.name!r}, which is not a validation image.")
            _write(tar, member, half / truth[number - 1] / member.name, name)
            found[number] += 1
            advance(1)
        if len(found) != len(truth):
            raise UserError(f"{path} has {len(found)} of {len(truth)} validation images; get it again.")
    half.replace(out)
    return len(truth)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, to: Path, name: re.Pattern[str]) -> int:
    """Write an image, unless a complete one exists; an interrupted write leaves a shorter file."""
    stream = tar.extractfile(member) if member.isreg() and member.size <= _LARGEST else None
    if stream is None or not name.fullmatch(member.name):
        raise UserError(f"{tar.name!s} is refused: {member.name!r} is not an image of ImageNet.")
    if not (to.is_file() and os.path.getsize(to) == member.size):
        _copy(stream, to)
    return 1


def _copy(stream: IO[bytes], to: Path) -> None:
    data = stream.read()
    with os.fdopen(open_plain(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)


@contextmanager
def _remove_if_refused(half: Path) -> Iterator[None]:
    """Remove what came from an archive that is refused. After a kill or a full disk it stays, to resume from."""
    try:
        yield
    except (UserError, tarfile.TarError):
        shutil.rmtree(half, ignore_errors=True)
        raise


def _make_folder(folder: Path) -> None:
    if folder.is_symlink():
        raise UserError(f"{folder} is a symbolic link, which is not followed; remove it.")
    folder.mkdir(exist_ok=True)


@contextmanager
def _open_archive(path: Path, mode: str = "r:*") -> Iterator[tarfile.TarFile]:
    """Open an archive; only errors in reading it are reported as its faults."""
    if not path.is_file():
        raise UserError(f"there is no archive {path}.")
    try:
        with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
            yield tar
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read as a tar archive ({error}); get it again.") from None
