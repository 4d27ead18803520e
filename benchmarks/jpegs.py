"""Photographs from files to normalised 224x224 batches on one thread: ours, and the usual way, image by image with PIL.

The photographs are those of $RESNETS_JPEGS, a folder of class folders, or of ../shared/data/imagenet-val-200.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from resnets.data import jpeg
from resnets.data.augment import Normalize
from resnets.data.decode_workers import Request, Views
from resnets.data.folder import open_folder
from resnets.data.random_crops import View
from resnets.engine.allocator import keep_freed_memory
from resnets.metadata import IMAGENET_MEAN_STD

if TYPE_CHECKING:
    from benchmarks.contestants import Job

FOLDER = Path(os.environ.get("RESNETS_JPEGS") or Path(__file__).parents[2] / "shared" / "data" / "imagenet-val-200")
_MEAN, _STD = (torch.tensor(values).view(-1, 1, 1) for values in IMAGENET_MEAN_STD)


def build(job: Job) -> Callable[[], object]:
    torch.set_num_threads(1)
    files = open_folder(FOLDER).train
    paths = [files.path(i * len(files) // job.batch) for i in range(job.batch)]
    if job.contestant == "PIL":
        draw = np.random.default_rng(0)
        return lambda: torch.stack([pil(path, draw) for path in paths])
    if job.contestant == "ours":
        if jpeg.load() is None:
            raise ModuleNotFoundError("no libjpeg-turbo with headers, or no compiler", name="libjpeg-turbo")
    else:
        jpeg.load = lambda: None  # type: ignore[assignment]
    return _ours(paths)


def _ours(paths: list[str]) -> Callable[[], Tensor]:
    keep_freed_memory()
    views = Views(View("aspect", 224, (0, 0), "random"), seed=0)
    normalize = Normalize.by_channel(*IMAGENET_MEAN_STD)
    epochs = iter(range(1 << 30))

    def batch() -> Tensor:
        piece = views[Request(next(epochs), list(range(len(paths))), paths)]
        return normalize(torch.from_numpy(piece.pixels).permute(0, 3, 1, 2))

    return batch


def pil(path: str, draw: np.random.Generator) -> Tensor:
    """Open, to RGB, a part of any scale and shape, scaled, mirrored, to a tensor, normalised: as torchvision does."""
    with open(path, "rb") as file:
        image: Image.Image = Image.open(file).convert("RGB")
    image = image.crop(part(image.size, draw)).resize((224, 224), Image.Resampling.BILINEAR)
    if draw.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    x = torch.from_numpy(np.array(image, np.uint8, copy=True)).permute(2, 0, 1).contiguous().float().div(255)
    return x.sub_(_MEAN).div_(_STD)


def part(size: tuple[int, int], draw: np.random.Generator) -> tuple[int, int, int, int]:
    """The corners of a part of 8 to 100 % of the area and of ratio 3/4 to 4/3; else the whole."""
    width, height = size
    for _ in range(10):
        area = width * height * draw.uniform(0.08, 1)
        ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            left, top = int(draw.integers(width - w + 1)), int(draw.integers(height - h + 1))
            return left, top, left + w, top + h
    return 0, 0, width, height
