"""Images to train and test on: CIFAR, Fashion-MNIST, procedural images, and folders of image files.

>>> from resnets.data import open_data
>>> images = open_data("synthetic:512")

`import resnets.data` does not import torch.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.cache import cache_dir
from resnets.counter_rng import order
from resnets.data import fetch
from resnets.data.annotations import open_annotated
from resnets.data.annotations.pictures import AnnotatedData
from resnets.data.folder import Folder, open_folder
from resnets.data.images import Images
from resnets.data.sets import DATASETS
from resnets.data.synthetic import synthetic as _synthetic
from resnets.errors import UserError, shown
from resnets.progress import Console, Progress, Silent
from resnets.recipe import is_boxed

if TYPE_CHECKING:
    from resnets.data.augment import Augment, Normalize
    from resnets.data.batch_order import BatchOrder

_LAZY = {  # names that import torch, and their modules
    "Augment": "resnets.data.augment",
    "Normalize": "resnets.data.augment",
    "BatchOrder": "resnets.data.batch_order",
}

__all__ = [
    "Augment",
    "BatchOrder",
    "Console",
    "Folder",
    "Images",
    "Normalize",
    "Progress",
    "Silent",
    "cache_dir",
    "load",
    "open_data",
    "open_folder",
    "open_labelled",
    "order",
    "parse_folder",
]


def open_data(
    what: str | os.PathLike[str] | Images | Folder | AnnotatedData,
    dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Images | Folder | AnnotatedData:
    """Open the images that a word names, as `--data` of every command does.

    `cifar10`, `cifar100`, `fashion-mnist`, `synthetic` or `synthetic:N` are sets in memory; `imagenet:DIR` and the path
    of a folder are class folders of image files; `voc:DIR`, `coco:JSON:DIR`, `yolo:DIR` and `csv:FILE` are pictures
    with boxes. `dir` is a folder in which to look for a set besides the usual ones.

    >>> from resnets.data import open_data
    >>> open_data("synthetic:512").classes[0]
    'level disc'
    """
    if isinstance(what, Images | Folder | AnnotatedData):
        return what
    if not isinstance(what, str | os.PathLike):
        raise UserError(f"data must be a name, a folder, Images or Folder, not {shown(what)}.")
    if is_boxed(os.fspath(what)):
        return open_annotated(os.fspath(what))
    folder, imagenet = parse_folder(os.fspath(what))
    return load(os.fspath(what), dir, progress) if folder is None else open_folder(folder, imagenet)


def open_labelled(what: Any, dir: str | Path | None = None) -> Images | Folder:
    """`open_data` for what needs a class for each image."""
    data = open_data(what, dir)
    if isinstance(data, AnnotatedData):
        raise UserError(f"{data.name} has boxes, which a detector needs, as faster_rcnn_resnet50; give class folders.")
    return data


def parse_folder(word: str) -> tuple[str | None, bool]:
    """The folder that a word names, or None, and whether it is ImageNet."""
    name, _, rest = word.partition(":")
    if name == "imagenet" and rest:
        return rest, True
    if name != "imagenet" and (os.sep in word or word in (".", "..") or os.path.isdir(word)):
        return word, False
    return None, False


def load(name: str, dir: str | Path | None = None, progress: Progress | None = None) -> Images:
    """Load a set of images by its name: `cifar10`, `cifar100`, `fashion-mnist`, `synthetic` or `synthetic:N`."""
    kind, colon, count = name.partition(":")
    if kind == "synthetic":
        if colon and not re.fullmatch("[0-9]{1,12}", count):
            raise UserError(f"data {shown(name)}: write synthetic:N with N the number of training images.")
        return _synthetic(int(count)) if colon else _synthetic()
    if name in DATASETS:
        return fetch.load(name, dir, progress)
    if kind == "imagenet" and not count:
        raise UserError("ImageNet is a folder: write imagenet:DIR; `resnets data prepare imagenet` makes one.")
    raise _unknown(name)


def _unknown(word: str) -> UserError:
    """The error for a name that is neither a set nor a folder; it suggests the nearest ones."""
    sets = [*DATASETS, "synthetic"]
    with suppress(OSError):
        folders = [entry.name for entry in os.scandir(".") if entry.is_dir()]
        if near := difflib.get_close_matches(word, [*sets, *folders], n=3, cutoff=0.6):
            return UserError(f"there is no data set or folder {shown(word)}: did you mean {' or '.join(near)}?")
    return UserError(
        f"there is no data set or folder {shown(word)}: give a folder with a subfolder for each class, or one of "
        f"{', '.join(sets)}."
    )


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'resnets.data' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
