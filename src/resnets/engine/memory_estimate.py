"""How much memory a training step will take, foretold from shapes, and the fastest mode that fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from resnets.engine import MODES
from resnets.engine.activation_memory import Counted, count
from resnets.engine.segments import Part, cut, peak
from resnets.engine.system_memory import held
from resnets.errors import UserError, one_of
from resnets.nn import ResNet
from resnets.spec import Spec

_COPIES = 3  # of the weights: themselves, their gradients, their momentum
_OBJECTS = 40 << 10  # a layer: modules, nodes of the graph, state of the optimizer
_HOLES = {"fast": 3, "lean": 3, "min": 4}  # units' worth of them, where the C library's heap places the maps
_ALONE = 1  # unit's worth of maps that PyTorch's own convolutions make, where the arena places the others
_AGAIN = 2  # more of them where bottlenecks are run again, as was measured
_USABLE = 0.9  # of the memory there is


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak bytes of a training step in a memory mode."""

    mode: str
    base: int  # of this process as it is: Python, torch and its kernels
    weights: int  # with their gradients and momentum, and the objects that hold them
    maps: int  # what is kept for the backward pass, and what comes and goes

    @property
    def added(self) -> int:
        """What training takes more."""
        return self.weights + self.maps

    @property
    def total(self) -> int:
        return self.base + self.added

    def fits(self, room: int | None) -> bool:
        """Whether there is so much; nobody knows without a number of bytes."""
        return room is None or self.added <= _USABLE * room


def forecast(
    spec: Spec, batch: int, size: int | tuple[int, int] | None = None, mode: str = "fast", *, device: str = "cpu"
) -> MemoryEstimate:
    """The peak memory of this process if it trains on batches of images of `size`, in float32."""
    if mode not in MODES:
        raise one_of("memory", mode, MODES)
    height, width = size if isinstance(size, tuple) else (spec.input_size if size is None else size,) * 2
    for name, number in (("batch", batch), ("size", height), ("size", width)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UserError(f"{name} must be a whole number of at least 1, not {number!r}.")
    counted = count(spec, "fast" if mode == "fast" else "lean", device)
    units = (Part(0, _cut(counted)[1], 0),) if mode == "min" else counted.units
    worth = _HOLES[mode]
    if counted.tidy:
        worth = _ALONE + (_AGAIN if mode == "min" and len(spec.kernels) > 2 else 0)
    holes = worth * max(unit.kept + unit.passing for unit in counted.units)
    maps = counted.room + peak([counted.stem, *units]) + holes
    return MemoryEstimate(mode, held(), _weights(spec), maps * batch * height * width // counted.pixels)


def fastest(
    spec: Spec, batch: int, size: int | tuple[int, int] | None, room: int | None, device: str = "cpu"
) -> MemoryEstimate:
    """The fastest mode that fits into `room` bytes, or else the one that takes least."""
    for mode in MODES:
        foretold = forecast(spec, batch, size, mode, device=device)
        if foretold.fits(room):
            break
    return foretold


def segments(spec: Spec, device: str = "cpu") -> tuple[int, ...]:
    """How many units each segment of the mode "min" has."""
    return _cut(count(spec, "lean", device))[0]


def _cut(counted: Counted) -> tuple[tuple[int, ...], int]:
    """The heap leaves a hole beside each input that stays while others come and go."""
    return cut(counted.units, places=1 if counted.tidy else 2)


@lru_cache
def _weights(spec: Spec) -> int:
    with torch.device("meta"):
        numbers = sum(p.numel() for p in ResNet(spec).parameters())
    return 4 * _COPIES * numbers + _OBJECTS * spec.depth
