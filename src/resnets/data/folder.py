"""Class folders of image files, such as ImageNet, which are decoded when they are needed.

DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg (or test), or one tree DIR/CLASS/*.jpg. Classes are numbered in the
order of their sorted names, or as numbers where all are numbers. ImageNet's folders may be the numbers of its classes.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from resnets.data.files import SUFFIXES, Files, class_folders, is_number, scan
from resnets.data.images import Indices, split
from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD

IMAGENET_CLASSES = 1000
_TESTS = ("val", "test")


@dataclass(frozen=True, eq=False)
class Folder:
    """Training and test images in files. Without test images it is a single tree."""

    name: str
    classes: tuple[str, ...]
    train: Files
    test: Files | None
    mean: tuple[float, ...] = IMAGENET_MEAN_STD[0]
    std: tuple[float, ...] = IMAGENET_MEAN_STD[1]
    channels: int = 3

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def digest(self) -> str:
        """The hash of class names, file names and sizes, without reading pixels."""
        parts = [*self.classes, self.train.digest, self.test.digest if self.test else ""]
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()

    def split(self, n_validation: int, seed: int) -> tuple[Indices, Indices]:
        """Indices of the training images to train on, and of `n_validation` held out."""
        return split(self.train.labels, self.num_classes, n_validation, seed)

    def some_classes(self, count: int) -> Folder:
        """Keep at most `count` of the classes that have images, evenly spaced, and renumber them."""
        there = np.unique(self.train.labels)
        kept = there[np.arange(min(count, len(there))) * len(there) // min(count, len(there))]
        places = np.full(self.num_classes, -1)
        places[kept] = np.arange(len(kept))

        def select(files: Files) -> Files:
            index = np.flatnonzero(places[files.labels] >= 0)
            if not len(index):
                raise UserError(f"{files.root} has no image of the {len(kept)} classes that are used.")
            return files.select(index, places[files.labels[index]])

        classes = tuple(self.classes[i] for i in kept)
        return replace(self, classes=classes, train=select(self.train), test=select(self.test) if self.test else None)


def open_folder(path: str | Path, imagenet: bool = False) -> Folder:
    """Open the class folders in a folder; for `imagenet`, they must be its 1000 classes, by wnid or number."""
    root = Path(path).expanduser()
    name = ("imagenet:" if imagenet else "") + os.path.normpath(path)
    if not root.is_dir():
        raise UserError(f"there is no folder {root} to take images from.")
    if not (root / "train").is_dir():
        folders = class_folders(root)
        classes, labels = _classes(root, folders, imagenet)
        return Folder(name, classes, _scan_training(root, folders, labels, imagenet), None)
    folders = class_folders(root / "train")
    classes, labels = _classes(root / "train", folders, imagenet)
    train = _scan_training(root / "train", folders, labels, imagenet)
    found = find_test_folder(root)
    return Folder(name, classes, train, _scan_tests(found, dict(zip(folders, labels, strict=True))) if found else None)


def _scan_training(root: Path, folders: tuple[str, ...], labels: list[int], imagenet: bool) -> Files:
    """List the training images. A class folder without images is refused, except in ImageNet."""
    files = scan(root, folders, labels)
    empty = sorted(set(range(len(folders))) - set(np.unique(files.places).tolist()))
    if empty and not imagenet:
        raise UserError(
            f"the class folder {root / folders[empty[0]]} has no image (images end in {', '.join(SUFFIXES)}): put "
            "images in it, or remove it if it is not a class."
        )
    return files


def find_test_folder(root: Path) -> Path | None:
    """The folder of the test images, if there is one."""
    return next((root / word for word in _TESTS if (root / word).is_dir()), None)


def _classes(root: Path, folders: tuple[str, ...], imagenet: bool) -> tuple[tuple[str, ...], list[int]]:
    """The names of the classes, and the label of each folder."""
    if len(folders) < 2:
        raise UserError(f"{root} must have a folder for each class, and has {len(folders)} folders.")
    if not imagenet:
        return folders, list(range(len(folders)))
    if all(map(is_number, folders)) and int(folders[-1]) < IMAGENET_CLASSES:
        return tuple(map(str, range(IMAGENET_CLASSES))), [int(folder) for folder in folders]
    wrong = [folder for folder in folders if not re.fullmatch(r"n[0-9]{8}", folder)]
    if wrong or len(folders) != IMAGENET_CLASSES:
        what = f"{wrong[0]} is neither" if wrong else f"it has {len(folders)} folders"
        raise UserError(
            f"{root} is not ImageNet: its {IMAGENET_CLASSES} folders are named by wnid, as n01440764, or by number, "
            f"and {what}; leave out imagenet: for other images."
        )
    return folders, list(range(len(folders)))


def _scan_tests(root: Path, known: dict[str, int]) -> Files:
    """List the test images. Their classes must be among those of the training images."""
    folders = class_folders(root)
    if strange := [folder for folder in folders if folder not in known]:
        raise UserError(f"{root} has the class {strange[0]}, which the training images do not have.")
    return scan(root, folders, [known[folder] for folder in folders])
