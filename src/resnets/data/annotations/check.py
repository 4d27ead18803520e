"""Decode every picture with boxes, compare it with what its annotation says, and draw some on a contact sheet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from resnets.data.annotations.drawing import draw_boxes, make_sheet
from resnets.data.annotations.pictures import AnnotatedData, BoxedPictures
from resnets.data.budget import room_for
from resnets.data.decode import BadImageError, Opened, read
from resnets.progress import Progress


@dataclass
class Checked:
    """What was found in the pictures of a part."""

    pictures: int = 0
    empty: int = 0  # pictures without objects
    objects: Counter[int] = field(default_factory=Counter)  # by class
    difficult: int = 0
    crowd: int = 0
    sides: list[float] = field(default_factory=list)  # roots of the areas of the boxes
    notes: Counter[str] = field(default_factory=Counter)
    bad: dict[str, str] = field(default_factory=dict)  # path: the end of a sentence that starts with it


def find_parts(data: AnnotatedData) -> dict[str, BoxedPictures]:
    return {"train": data.train, **({"test": data.test} if data.test else {})}


def check_pictures(data: AnnotatedData, progress: Progress) -> dict[str, Checked]:
    found = {}
    for part, pictures in find_parts(data).items():
        one = found[part] = Checked()
        with progress.task(f"decoding {part}", len(pictures)) as advance:
            for i in range(len(pictures)):
                _add(one, pictures, i)
                advance(1)
    return found


def _add(one: Checked, pictures: BoxedPictures, index: int) -> None:
    path, truth = pictures.paths[index], pictures.truth(index)
    one.pictures += 1
    one.empty += not len(truth.labels)
    one.objects.update(truth.labels.tolist())
    one.difficult += int(truth.difficult.sum())
    one.crowd += int(truth.crowd.sum())
    one.sides += np.sqrt((truth.boxes[:, 2:] - truth.boxes[:, :2]).prod(1)).tolist()
    try:
        decode_as_described(path, pictures.sizes[index], one.notes)
    except BadImageError as bad:
        one.bad[path] = str(bad)


def decode_as_described(path: str, size: np.ndarray, notes: Counter[str] | None = None) -> Image.Image:
    """The picture, upright; `BadImageError` also where it has not the size that its annotation gives."""
    opened = Opened(read(path))
    if tuple(opened.size) != tuple(size):
        wide, high = opened.size
        raise BadImageError(f"has {wide}x{high} pixels, and its annotation says {size[0]}x{size[1]}")
    if notes is not None:
        notes.update(opened.notes)
    with room_for(opened.size):
        return Image.fromarray(opened.pixels())


def draw_sheet(pictures: BoxedPictures, classes: tuple[str, ...], count: int = 12) -> Image.Image:
    """Some pictures, evenly spaced, with their boxes; difficult objects and crowds have a thin frame."""
    tiles = []
    count = min(count, len(pictures))
    for i in (k * len(pictures) // count for k in range(count)):
        try:
            picture = decode_as_described(pictures.paths[i], pictures.sizes[i])
        except BadImageError:
            continue
        truth = pictures.truth(i)
        names = [classes[label] for label in truth.labels]
        thin = (truth.difficult | truth.crowd).tolist()
        tiles.append(draw_boxes(picture, truth.boxes, truth.labels.tolist(), names, thin))
    return make_sheet(tiles)
