"""Estimate the memory of a training step from shapes, and choose the fastest mode that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from resnets.chain import Chain, NetworkSpec
from resnets.engine import MODES
from resnets.engine.activation_memory import NetMemory, measure
from resnets.engine.chain_memory import count_chain
from resnets.engine.segments import Part, cut, peak
from resnets.engine.system_memory import available, held
from resnets.errors import UserError, one_of
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
        """What training takes beside the base."""
        return self.weights + self.maps

    @property
    def total(self) -> int:
        return self.base + self.added

    def fits(self, room: int | None) -> bool:
        """Whether training fits into `room` bytes; None is unknown and fits."""
        return room is None or self.added <= _USABLE * room


def forecast(
    spec: NetworkSpec, batch: int, size: int | tuple[int, int] | None = None, mode: str = "fast", *, device: str = "cpu"
) -> MemoryEstimate:
    """The peak memory of this process if it trains on batches of images of `size`, in float32."""
    if mode not in MODES:
        raise one_of("memory", mode, MODES)
    height, width = size if isinstance(size, tuple) else (spec.input_size if size is None else size,) * 2
    for name, number in (("batch", batch), ("size", height), ("size", width)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UserError(f"{name} must be a whole number of at least 1, not {number!r}.")
    if isinstance(spec, Chain):
        parameters, numbers = count_chain(spec, (height, width))
        weights = 4 * _COPIES * parameters + _OBJECTS * spec.depth
        return MemoryEstimate(mode, held(), weights, 4 * numbers * batch)
    net = measure(spec, "fast" if mode == "fast" else "lean", device)
    units = (Part(0, _cut(net)[1], 0),) if mode == "min" else net.units
    worth = _HOLES[mode]
    if net.tidy:
        worth = _ALONE + (_AGAIN if mode == "min" and len(spec.kernels) > 2 else 0)
    holes = worth * max(unit.kept + unit.passing for unit in net.units)
    maps = net.room + peak([net.stem, *units]) + holes
    weights = 4 * _COPIES * net.parameters + _OBJECTS * spec.depth
    return MemoryEstimate(mode, held(), weights, maps * batch * height * width // net.pixels)


def fastest(
    spec: NetworkSpec, batch: int, size: int | tuple[int, int] | None, room: int | None, device: str = "cpu"
) -> MemoryEstimate:
    """The fastest mode that fits into `room` bytes, or else the one that takes least."""
    for mode in ("fast",) if isinstance(spec, Chain) else MODES:  # the others run residual units again
        estimate = forecast(spec, batch, size, mode, device=device)
        if estimate.fits(room):
            break
    return estimate


def choose_mode(
    spec: Spec,
    batch: int,
    size: int | tuple[int, int] | None,
    device: torch.device,
    *,
    first: str | None = None,
    processes: int = 1,
    warn: Callable[[str], None] = lambda sentence: None,
) -> str:
    """The fastest mode that fits into the memory of this machine, which `processes` share on a CPU.

    `first` is the mode in which a run began; it is kept if it fits, as it gives the same bits.
    """
    room = available(device)
    if room is not None and device.type == "cpu":
        room //= processes
    if first is not None and forecast(spec, batch, size, first, device=device.type).fits(room):
        return first
    estimate = fastest(spec, batch, size, room, device.type)
    if room is not None and not estimate.fits(room):
        warn(
            f"even memory mode {estimate.mode} takes about {estimate.added >> 20:,} MiB and there are {room >> 20:,}; "
            "a smaller --micro-batch takes less."
        )
    return estimate.mode


def segments(spec: Spec, device: str = "cpu") -> tuple[int, ...]:
    """How many units each segment of the mode "min" has."""
    return _cut(measure(spec, "lean", device))[0]


def _cut(net: NetMemory) -> tuple[tuple[int, ...], int]:
    """The heap leaves a hole beside each input that stays while others come and go."""
    return cut(net.units, places=1 if net.tidy else 2)
