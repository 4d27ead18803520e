"""Augmented CIFAR batches on one thread: ours for a whole batch, against the usual way, image by image through PIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from resnets.data.augment import Augment, Normalize

if TYPE_CHECKING:
    from benchmarks.contestants import Job

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
IMAGES = 10_000


def pil(image: Image.Image, top: int, left: int, flipped: bool) -> Tensor:
    """Pad by 4, crop, mirror, to a tensor, normalise: with the types and copies of torchvision's transforms."""
    image = ImageOps.expand(image, 4, fill=0).crop((left, top, left + 32, top + 32))
    if flipped:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    x = torch.from_numpy(np.array(image, np.uint8, copy=True)).permute(2, 0, 1).contiguous().float().div(255)
    return x.sub_(torch.tensor(MEAN).view(-1, 1, 1)).div_(torch.tensor(STD).view(-1, 1, 1))


def build(job: Job) -> Callable[[], object]:
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=draw)
    index = torch.randperm(IMAGES, generator=draw)[: job.batch]
    return {"ours": _ours, "PIL": _pil, "torchvision": _torchvision}[job.contestant](images, index)


def _ours(images: Tensor, index: Tensor) -> Callable[[], Tensor]:
    augment = Augment(Normalize.by_channel(MEAN, STD), seed=0)
    return lambda: augment(images.index_select(0, index), index, 0)


def _pil(images: Tensor, index: Tensor) -> Callable[[], Tensor]:
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()

    def image(i: int) -> Tensor:
        top, left = (int(torch.randint(0, 9, ())) for _ in range(2))
        return pil(Image.fromarray(pixels[i]), top, left, bool(torch.rand(()) < 0.5))

    return lambda: torch.stack([image(i) for i in index.tolist()])


def _torchvision(images: Tensor, index: Tensor) -> Callable[[], Tensor]:
    from benchmarks.peers import import_torchvision

    import_torchvision()
    from torchvision import transforms

    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    steps = [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    transform = transforms.Compose([*steps, transforms.Normalize(MEAN, STD)])
    return lambda: torch.stack([transform(Image.fromarray(pixels[i])) for i in index.tolist()])
