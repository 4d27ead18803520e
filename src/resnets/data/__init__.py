"""Images to train and test on: CIFAR and Fashion-MNIST, checked by hash, procedural ones, and folders of files.

>>> from resnets.data import load
>>> images = load("synthetic:512")

torch is imported by what needs it, not by `import resnets.data`.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.cache import cache_dir
from resnets.data import fetch
from resnets.data.counter_rng import order
from resnets.data.fetch import fetch_command
from resnets.data.folder import Folder, open_folder
from resnets.data.images import Images
from resnets.data.progress import Console, Progress, Silent
from resnets.data.sets import DATASETS
from resnets.data.synthetic import synthetic as _synthetic
from resnets.errors import UserError, one_of, shown

if TYPE_CHECKING:
    from resnets.data.augment import Augment, Normalize
    from resnets.data.batch_order import BatchOrder

_LAZY = {  # what imports torch, and where it lives
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
    "fetch_command",
    "is_folder",
    "load",
    "load_or_open",
    "open_folder",
    "order",
]


def load(spec: str, dir: str | Path | None = None, progress: Progress | None = None) -> Images:
    """Images in memory by name: `cifar10`, `cifar100`, `fashion-mnist`, `synthetic` or `synthetic:N`.

    `dir` is a folder to look in besides the usual ones.
    """
    name, colon, count = spec.partition(":")
    if name == "synthetic":
        if colon and not re.fullmatch("[0-9]{1,12}", count):
            raise UserError(f"data {shown(spec)}: write synthetic:N with N the number of training images.")
        return _synthetic(int(count)) if colon else _synthetic()
    if spec in DATASETS:
        return fetch.load(spec, dir, progress)
    if name == "imagenet" and not count:
        raise UserError("ImageNet is a folder: write imagenet:DIR; `resnets data prepare imagenet` makes one.")
    raise one_of("data", spec, [*DATASETS, "synthetic"])


def is_folder(spec: str) -> bool:
    """Whether a name of data means a folder of class folders."""
    return spec.startswith("imagenet:") or os.sep in spec or spec in (".", "..") or os.path.isdir(spec)


def load_or_open(spec: str, dir: str | Path | None = None, progress: Progress | None = None) -> Images | Folder:
    """What `--data` of a training names: images in memory, `imagenet:DIR`, or a folder of class folders."""
    name, _, rest = spec.partition(":")
    if name == "imagenet" and rest:
        return open_folder(rest, imagenet=True)
    return open_folder(spec) if name != "imagenet" and is_folder(spec) else load(spec, dir, progress)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'resnets.data' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
