"""A published set of small images: its classes, where to get it, and the hashes of a true copy.

Every source is converted to one form, `Rows`: the records of CIFAR's official binary files, a label byte and then the
R, G and B planes, training images before test images. Rows are used only if their hash is known.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from resnets.data.images import Images
from resnets.errors import UserError

RECORD = np.dtype([("label", "u1"), ("image", "u1", (3, 32, 32))])
Rows = npt.NDArray[Any]  # of RECORD


@dataclass(frozen=True)
class Layout:
    """One form of the published files: a folder, or an archive of that folder."""

    form: str  # the reader of its files, in `layouts.READERS`
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    archive: str = ""  # its file name; * stands for a version
    md5: str = ""  # of the archive, where it is known
    extra: tuple[str, ...] = ()  # files without images
    md5s: tuple[str, ...] = ()  # of `files`, if they are published one by one

    @property
    def files(self) -> tuple[str, ...]:
        return self.train + self.test + self.extra


@dataclass(frozen=True)
class DatasetSpec:
    """A set of small labelled images, and the hashes of a true copy."""

    name: str
    title: str
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    counts: tuple[int, int]  # training and test images; all classes have the same number
    content: str  # sha256 of the rows in canonical order
    official: str  # sha256 of the rows in official order, where known
    batches: tuple[str, ...]  # md5 of the official binary files, where known
    layouts: tuple[Layout, ...]
    download: str  # the official archive, or the folder with the official files
    clone: str = ""  # the name of a folder with its images as PNG files
    npm: str = ""  # a package that contains it

    @property
    def published(self) -> str:
        """The names of the official files."""
        archives = [layout.archive for layout in self.layouts if layout.md5]
        return " or ".join(archives) or ", ".join(self.layouts[0].files)

    def images(self, rows: Rows, digest: str) -> Images:
        train, test = rows[: self.counts[0]], rows[self.counts[0] :]
        return Images(
            name=self.name,
            classes=self.classes,
            mean=self.mean,
            std=self.std,
            train_images=np.asarray(train["image"]),
            train_labels=train["label"].astype(np.int64),
            test_images=np.asarray(test["image"]),
            test_labels=test["label"].astype(np.int64),
        ).with_digest(digest)

    def canonical(self, rows: Rows) -> Rows:
        """Sort training and test rows by their sha256.

        Sources that have lost the official order use this one, which mixes the classes too.
        """

        def ordered(part: Rows) -> Rows:
            keys = [hashlib.sha256(row.tobytes()).digest() for row in part]
            return part[sorted(range(len(part)), key=keys.__getitem__)]

        return np.concatenate([ordered(rows[: self.counts[0]]), ordered(rows[self.counts[0] :])])

    def check_batch(self, number: int, rows: Rows, where: str) -> None:
        """Refuse rows that are not those of the official file `number`, where its hash is known."""
        found = hashlib.md5(_bytes(rows), usedforsecurity=False).hexdigest()
        if self.batches and found != self.batches[number]:
            raise UserError(
                f"{where} is not {self.title}'s: converted to the official binary file its md5 is {found}, not "
                f"{self.batches[number]}; remove it or replace it by the official file."
            )

    def check(self, rows: Rows, where: str) -> str:
        """Refuse rows that are not this set, in whatever order; returns the sha256 of the rows as they are."""
        for part, each, labels in (
            ("training", self.counts[0], rows["label"][: self.counts[0]]),
            ("test", self.counts[1], rows["label"][self.counts[0] :]),
        ):
            found = np.bincount(labels, minlength=len(self.classes))
            if len(rows) != sum(self.counts) or found.tolist() != [each // len(self.classes)] * len(self.classes):
                raise UserError(
                    f"{where} is not {self.title}: it has {len(labels)} {part} images, {found.min()} to {found.max()} "
                    f"a class, not {each} and {each // len(self.classes)}; replace it by a complete copy."
                )
        digest = hashlib.sha256(_bytes(rows)).hexdigest()
        if digest not in (self.content, self.official):
            content = hashlib.sha256(_bytes(self.canonical(rows))).hexdigest()
            if content != self.content:
                raise UserError(
                    f"{where} is not {self.title}: the sha256 of its pixels and labels is {content}, not "
                    f"{self.content}; replace it by a true copy."
                )
        return digest


def _bytes(rows: Rows) -> memoryview:
    return rows.view(np.uint8).data
