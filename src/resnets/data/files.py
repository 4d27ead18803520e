"""The files in class folders as compact arrays: a million files take some tens of megabytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from resnets.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass(frozen=True, eq=False)
class Files:
    """Labelled image files: their names one after the other in one array of bytes, and where each ends."""

    root: Path
    folders: tuple[str, ...]  # of the classes
    names: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    places: npt.NDArray[np.int32]  # index in `folders` of each file
    labels: npt.NDArray[np.int64]
    digest: str  # of labels, names and sizes, without reading pixels

    def __len__(self) -> int:
        return len(self.ends)

    def path(self, index: int) -> str:
        """The path of a file."""
        start = int(self.ends[index - 1]) if index else 0
        name = os.fsdecode(self.names[start : int(self.ends[index])].tobytes())
        return os.path.join(self.root, self.folders[self.places[index]], name)

    def select(self, index: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> Files:
        """Some of the files, with other labels."""
        starts = np.concatenate([[0], self.ends[:-1]])[index]
        names = [self.names[start:end] for start, end in zip(starts, self.ends[index], strict=True)]
        digest = hashlib.sha256(b"\0".join((self.digest.encode(), index.tobytes(), labels.tobytes())))
        return Files(
            self.root,
            self.folders,
            np.concatenate(names),
            np.cumsum([len(name) for name in names], dtype=np.int64),
            self.places[index],
            labels,
            digest.hexdigest(),
        )


def class_folders(root: Path) -> tuple[str, ...]:
    """The folders in a folder, sorted by name, or by number if all are numbers."""
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"cannot read the folder {root}: {error.strerror}.") from None
    numbers = all(map(is_number, names))
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))


def is_named_as_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def scan(root: Path, folders: Sequence[str], labels: Sequence[int]) -> Files:
    """List the image files in class folders and below, sorted by name in each class."""
    names, ends, places = bytearray(), [], []
    digest = hashlib.sha256()
    for place, (folder, label) in enumerate(zip(folders, labels, strict=True)):
        for name, size in sorted(_images(str(root / folder))):
            names += name
            ends.append(len(names))
            places.append(place)
            digest.update(b"%d %s\0%d\n" % (label, name, size))
    if not ends:
        raise UserError(f"{root} has no image in its class folders; images end in {', '.join(SUFFIXES)}.")
    at = np.array(places, np.int32)
    return Files(
        root,
        tuple(folders),
        np.frombuffer(bytes(names), np.uint8),
        np.array(ends, np.int64),
        at,
        np.array(labels, np.int64)[at],
        digest.hexdigest(),
    )


def _images(top: str) -> Iterator[tuple[bytes, int]]:
    """The paths of the image files below a folder, relative to it, and their sizes."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            with os.scandir(os.path.join(top, inside)) as entries:
                for entry in entries:
                    name = os.path.join(inside, entry.name)
                    if entry.is_dir():
                        waiting += [] if entry.name.startswith(".") else [name]
                    elif is_named_as_picture(entry.name):
                        yield os.fsencode(name), entry.stat().st_size
        except OSError as error:
            raise UserError(f"cannot read {os.path.join(top, inside)}: {error.strerror}.") from None
