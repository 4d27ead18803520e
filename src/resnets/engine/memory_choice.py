"""Choose the memory mode for a training on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from resnets.chain import NetworkSpec
from resnets.engine.memory_estimate import fastest, forecast
from resnets.engine.system_memory import available


@dataclass(frozen=True)
class MemoryChoice:
    """A memory mode, what a training step takes in it, and whether there is so much memory."""

    mode: str
    added: int  # bytes
    fits: bool
    fastest: str | None  # the fastest mode that fits, if one does


def choose_memory(
    spec: NetworkSpec, batch: int, size: int | None, device: torch.device, memory: str = "auto"
) -> MemoryChoice:
    """The named mode; `auto` is the fastest that fits, or else the one that takes least."""
    room = available(device)
    best = fastest(spec, batch, size, room, device.type)
    chosen = best if memory == "auto" else forecast(spec, batch, size, memory, device=device.type)
    return MemoryChoice(chosen.mode, chosen.added, chosen.fits(room), best.mode if best.fits(room) else None)
