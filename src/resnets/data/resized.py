"""Sets of images in memory made smaller: scaled to another side, or with fewer test images."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from resnets.data import load
from resnets.data.images import Images

_AT_ONCE = 5000  # images to scale


def load_resized(name: str, side: int | None = None, tests: int | None = None, dir: str | Path | None = None) -> Images:
    """Load a named set, scale its training and test images to `side`, and keep the first `tests` test images."""
    images = load(name, dir)
    if side and side != images.train_images.shape[-1]:
        images = resize(images, side)
    return keep_first_tests(images, tests) if tests else images


def resize(images: Images, side: int) -> Images:
    """Scale every image to `side`, in bytes again; mean and deviation are those of the scaled training images."""
    train, test = (_scale(part, side) for part in (images.train_images, images.test_images))
    channels = train.transpose(1, 0, 2, 3).reshape(train.shape[1], -1)
    digest = hashlib.sha256(f"{images.digest} {side}".encode())
    for part in (train, test):
        digest.update(part.data)
    return dataclasses.replace(
        images,
        name=f"{images.name}@{side}",
        mean=tuple(round(float(c.mean(dtype=np.float64)) / 255, 4) for c in channels),
        std=tuple(round(float(c.std(dtype=np.float64)) / 255, 4) for c in channels),
        train_images=train,
        test_images=test,
    ).with_digest(digest.hexdigest())


def _scale(images: np.ndarray, side: int) -> np.ndarray:
    parts = []
    for start in range(0, len(images), _AT_ONCE):
        pixels = torch.from_numpy(images[start : start + _AT_ONCE]).float()
        small = functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True, align_corners=False)
        parts.append(small.round_().clamp_(0, 255).byte().numpy())
    return np.concatenate(parts)


def keep_first_tests(images: Images, count: int) -> Images:
    """Keep only the first `count` test images: a very deep net takes longer to test than a short training takes."""
    return dataclasses.replace(
        images,
        name=f"{images.name}/{count}",
        test_images=images.test_images[:count],
        test_labels=images.test_labels[:count],
    ).with_digest(hashlib.sha256(f"{images.digest} {count}".encode()).hexdigest())
