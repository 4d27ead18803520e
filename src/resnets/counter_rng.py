"""Counter-based random numbers.

A draw is a pure function of its purpose, the seed, the epoch and the index of the image. It does not depend on the
batch, the worker, the device, a restart or the version of a library. The bits are those of splitmix64: a key from
purpose, seed and epoch, then one step of the sequence for each index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


def _mix(z: Bits) -> Bits:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draws(purpose: str, seed: int, epoch: int, index: npt.NDArray[Any]) -> Bits:
    """64 random bits for each index. Different purposes give independent draws."""
    key = 0
    for word in (int.from_bytes(purpose.encode(), "little"), seed, epoch):
        key = int(_mix(np.array([((key ^ word) + _GAMMA) & _WORD], np.uint64))[0])
    return _mix(np.uint64(key) + (index.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA))


def below(bits: Bits, n: int) -> npt.NDArray[np.int64]:
    """Whole numbers from 0 to n - 1, from the upper half of the bits."""
    return (((bits >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def uniform(bits: Bits) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1, 1 not included."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def alternate(seed: int, epoch: int, index: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each image is mirrored if that happens in every other epoch, from a random start."""
    return (draws("phase", seed, 0, index) + np.uint64(epoch)) & np.uint64(1) != 0


def order(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order in which an epoch visits n images: the indices, sorted by their draws."""
    return np.argsort(draws("order", seed, epoch, np.arange(n)), kind="stable")
