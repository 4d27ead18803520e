"""Pictures with boxes around their objects, as compact arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from resnets.data.images import Indices, split
from resnets.errors import UserError, one_of
from resnets.metadata import IMAGENET_MEAN_STD
from resnets.options import BAD_BOXES

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_TOLERANCE = 1.0  # pixels beyond the picture that rounding may cause; they are cut off without a word
_WARNINGS = 10


class Box(NamedTuple):
    """An object as a file describes it, before it is checked."""

    where: str  # the file and the number of the object in it
    corners: tuple[float, float, float, float]  # left, top, right, bottom in pixels; the picture begins at 0
    name: str  # of its class
    difficult: bool = False
    crowd: bool = False
    area: float | None = None  # of the object, if it is not that of the box


class Entry(NamedTuple):
    """A picture as a file describes it."""

    path: str
    size: tuple[int, int]  # width and height
    boxes: list[Box]


@dataclass(frozen=True, eq=False)
class Truth:
    """The objects of a picture."""

    boxes: Floats  # (N, 4): left, top, right, bottom
    labels: Indices
    difficult: Bools  # VOC: neither to be found nor an error if they are
    crowd: Bools  # COCO: a group; what lies in it is no error
    areas: Floats  # COCO: of the object, or of its box


@dataclass(frozen=True, eq=False)
class BoxedPictures:
    """Pictures and their objects."""

    paths: tuple[str, ...]
    sizes: npt.NDArray[np.int64]  # (N, 2): width and height
    ends: npt.NDArray[np.int64]  # where the objects of each picture end
    objects: Truth  # of all pictures, one after the other

    def __len__(self) -> int:
        return len(self.paths)

    def truth(self, index: int) -> Truth:
        part = slice(int(self.ends[index - 1]) if index else 0, int(self.ends[index]))
        o = self.objects
        return Truth(o.boxes[part], o.labels[part], o.difficult[part], o.crowd[part], o.areas[part])

    def select(self, index: Sequence[int] | npt.NDArray[np.int64]) -> BoxedPictures:
        """Some of the pictures."""
        truths = [self.truth(int(i)) for i in index]
        sizes = self.sizes[np.asarray(index, np.int64)]
        return BoxedPictures(tuple(self.paths[int(i)] for i in index), sizes, *join(truths))

    def digest(self) -> str:
        """The hash of names, sizes and objects, without reading pixels."""
        o = self.objects
        names = "\0".join(path.replace("\\", "/").rpartition("/")[2] for path in self.paths)
        digest = hashlib.sha256(names.encode(errors="surrogateescape"))
        for array in (self.sizes, self.ends, o.boxes, o.labels, o.difficult, o.crowd, o.areas):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def join(truths: Sequence[Truth]) -> tuple[npt.NDArray[np.int64], Truth]:
    """Where the objects of each picture end, and all of them one after the other."""
    empty = Truth(np.empty((0, 4)), np.empty(0, np.int64), np.empty(0, bool), np.empty(0, bool), np.empty(0))
    columns = (np.concatenate(c) for c in zip(*(vars(t).values() for t in (empty, *truths)), strict=True))
    return np.cumsum([len(t.labels) for t in truths], dtype=np.int64), Truth(*columns)


@dataclass(frozen=True, eq=False)
class AnnotatedData:
    """Pictures to train a detector on, and perhaps pictures to test it on."""

    name: str
    place: str  # the name with absolute paths
    classes: tuple[str, ...]
    train: BoxedPictures
    test: BoxedPictures | None
    faults: tuple[BoxFault, ...] = ()  # of boxes that were skipped or cut
    mean: tuple[float, ...] = IMAGENET_MEAN_STD[0]
    std: tuple[float, ...] = IMAGENET_MEAN_STD[1]
    channels: int = field(default=3, init=False)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def digest(self) -> str:
        parts = [*self.classes, self.train.digest(), self.test.digest() if self.test else ""]
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()

    def split(self, n_validation: int, seed: int) -> tuple[Indices, Indices]:
        """Indices of the pictures to train on, and of `n_validation` held out."""
        if not n_validation:
            return np.arange(len(self.train)), np.arange(0)
        return split(np.zeros(len(self.train), np.int64), 1, n_validation, seed)


# --- boxes that are no good -------------------------------------------------------------------


class BoxFault(NamedTuple):
    where: str
    what: str  # the end of a sentence that begins with `where`
    clipped: bool = False  # instead of skipped

    def __str__(self) -> str:
        return f"{self.where} {self.what}"


class BoxJudge:
    """Checks boxes and keeps those that are good, by a policy for the others."""

    def __init__(self, policy: str = "error", warn: Callable[[str], None] = lambda sentence: None) -> None:
        if policy not in BAD_BOXES:
            raise one_of("policy for bad boxes", policy, BAD_BOXES)
        self.policy, self.warn = policy, warn
        self.faults: list[BoxFault] = []

    def collect(self, entries: Sequence[Entry], classes: Sequence[str]) -> BoxedPictures:
        """The pictures with the boxes that are good."""
        if not entries:
            raise UserError("the list of pictures is empty.")
        labels = {name: label for label, name in enumerate(classes)}
        truths = [self._check(entry, labels) for entry in entries]
        sizes = np.array([entry.size for entry in entries], np.int64)
        return BoxedPictures(tuple(entry.path for entry in entries), sizes, *join(truths))

    def finish(self) -> tuple[BoxFault, ...]:
        """Report the faults: raise, or warn."""
        if self.faults and self.policy == "error":
            more = f" and {len(self.faults) - 1:,} more boxes are bad" if len(self.faults) > 1 else ""
            raise UserError(
                f"{self.faults[0]}{more}: correct them ('resnets data check' lists them), or choose what to do with "
                "such boxes: --bad-boxes clip or skip."
            )
        for i, fault in enumerate(self.faults[:_WARNINGS], 1):
            rest = len(self.faults) - i
            more = f"; {rest:,} more" if i == _WARNINGS and rest else ""
            self.warn(f"{fault}; {'cut to the picture' if fault.clipped else 'skipped'}{more}.")
        return tuple(self.faults)

    def _check(self, entry: Entry, labels: dict[str, int]) -> Truth:
        kept = [(box, good) for box in entry.boxes if (good := self._check_box(box, entry.size, labels)) is not None]
        corners = np.array([good for _, good in kept], np.float64).reshape(-1, 4)
        sides = corners[:, 2:] - corners[:, :2]
        areas = [
            box.area if box.area is not None else float(side.prod()) for (box, _), side in zip(kept, sides, strict=True)
        ]
        return Truth(
            corners,
            np.array([labels[box.name] for box, _ in kept], np.int64),
            np.array([box.difficult for box, _ in kept], bool),
            np.array([box.crowd for box, _ in kept], bool),
            np.array(areas, np.float64),
        )

    def _check_box(self, box: Box, size: tuple[int, int], labels: dict[str, int]) -> tuple[float, ...] | None:
        """The corners, cut to the picture; None for a box that is left out."""
        width, height = size
        left, top, right, bottom = box.corners
        if not np.isfinite(box.corners).all():
            return self._refuse(box, "has corners that are not numbers")
        if box.name not in labels:
            return self._refuse(box, f"is of the unknown class {box.name!r}")
        if right <= left or bottom <= top:
            return self._refuse(box, f"has no area (from {left:g}, {top:g} to {right:g}, {bottom:g})")
        inside = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
        whole = inside[2] > inside[0] and inside[3] > inside[1]
        beyond = max(-left, -top, right - width, bottom - height)
        if not whole or beyond > _TOLERANCE:
            corners = f"from {left:g}, {top:g} to {right:g}, {bottom:g}"
            what = f"{'reaches beyond' if whole else 'lies outside'} the picture of {width}x{height} ({corners})"
            return self._refuse(box, what, inside if whole and self.policy == "clip" else None)
        return inside

    def _refuse(self, box: Box, what: str, instead: tuple[float, ...] | None = None) -> tuple[float, ...] | None:
        self.faults.append(BoxFault(box.where, what, instead is not None))
        return instead
