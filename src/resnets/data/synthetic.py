"""Procedural images to train on without a download: five shapes with horizontal or vertical stripes.

The class is the shape and the direction of the stripes inside it. Position, size, colours, width and phase of the
stripes, and noise are random, so that no single pixel shows the class and a linear classifier does badly. A mirrored
image keeps its class.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from resnets.counter_rng import draws, uniform
from resnets.data.images import Images
from resnets.errors import UserError

SIZE = 32
SHAPES = ("disc", "ring", "square", "diamond", "cross")
STRIPES = ("level", "upright")
LEAST, DEFAULT, MOST = 40, 2048, 100_000

Floats = npt.NDArray[np.float32]


def synthetic(n: int = DEFAULT, seed: int = 0) -> Images:
    """`n` training and `n // 4` test images of 10 classes; an image depends on `seed` and its index only."""
    if isinstance(n, bool) or not isinstance(n, int) or not LEAST <= n <= MOST:
        raise UserError(f"synthetic data must have {LEAST} to {MOST} training images, not {n}.")
    train, train_labels = _draw_images("train", n, seed)
    test, test_labels = _draw_images("test", n // 4, seed)
    pixels = train.transpose(1, 0, 2, 3).reshape(3, -1).astype(np.float32) / 255
    digest = hashlib.sha256()
    for array in (train, train_labels, test, test_labels):
        digest.update(array.data)
    return Images(
        name="synthetic" if n == DEFAULT else f"synthetic:{n}",
        classes=tuple(f"{stripes} {shape}" for shape in SHAPES for stripes in STRIPES),
        mean=tuple(round(float(v), 4) for v in pixels.mean(1, dtype=np.float64)),
        std=tuple(round(float(v), 4) for v in pixels.std(1, dtype=np.float64)),
        train_images=train,
        train_labels=train_labels,
        test_images=test,
        test_labels=test_labels,
    ).with_digest(digest.hexdigest())


def _draw_images(part: str, n: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    index = np.arange(n, dtype=np.int64)
    labels = index % (len(SHAPES) * len(STRIPES))

    def number(what: int, low: float, high: float) -> Floats:
        drawn = low + (high - low) * uniform(draws(part, seed, what, index))
        return drawn.astype(np.float32).reshape(n, 1, 1)

    grid = np.arange(SIZE, dtype=np.float32)
    radius = number(0, 9, 13)
    y = (grid[:, None] - number(1, 13, 18)) / radius
    x = (grid[None, :] - number(2, 13, 18)) / radius
    mask = _inside(labels // len(STRIPES), x, y)

    upright = (labels % len(STRIPES) == 1).reshape(n, 1, 1)
    along = np.where(upright, grid[None, :], grid[:, None]) / number(3, 4, 7) + number(4, 0, 1)
    stripe = along % 1 < 0.5

    image = np.empty((n, 3, SIZE, SIZE), np.float32)
    for channel in range(3):  # the colours of the two stripes always differ
        ground, dark, step = (
            number(10 * channel + k, low, high) for k, low, high in ((5, 30, 225), (6, 0, 155), (7, 60, 100))
        )
        image[:, channel] = np.where(mask, dark + step * stripe, ground)
    image += _noise(part, n, seed)
    return np.clip(image, 0, 255).astype(np.uint8), labels


def _inside(shape: npt.NDArray[np.int64], x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
    """The pixels that the shape covers; its radius is about 1."""
    mask = np.empty(np.broadcast_shapes(x.shape, y.shape), np.bool_)
    for kind, name in enumerate(SHAPES):
        own = shape == kind
        u, v = np.abs(x[own]), np.abs(y[own])
        if name == "disc":
            mask[own] = u * u + v * v < 1
        elif name == "ring":
            mask[own] = np.abs(u * u + v * v - 0.7) < 0.4
        elif name == "square":
            mask[own] = np.maximum(u, v) < 0.85
        elif name == "diamond":
            mask[own] = u + v < 1.2
        else:
            mask[own] = (np.minimum(u, v) < 0.3) & (np.maximum(u, v) < 1.1)
    return mask


def _noise(part: str, n: int, seed: int) -> Floats:
    """Triangular noise of standard deviation 10: the difference of two random bytes, scaled."""
    words = 2 * 3 * SIZE * SIZE // 8
    drawn = draws(part, seed, -1, np.arange(n * words)).astype("<u8").view(np.uint8)
    pairs = drawn.reshape(n, 2, 3, SIZE, SIZE).astype(np.float32)
    return (pairs[:, 0] - pairs[:, 1]) * np.float32(0.1)
