"""Choose the memory mode for this machine. It is not part of a run's identity: a run can resume in another mode."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from resnets.engine.memory_estimate import MemoryEstimate, fastest, forecast
from resnets.engine.prepared import Prepared
from resnets.engine.system_memory import available
from resnets.recipe import Recipe
from resnets.spec import Spec


def fallbacks(model: nn.Module) -> list[str]:
    """Sentences that say why PyTorch runs some units of a prepared network in spite of its mode."""
    choices = model.choices if isinstance(model, Prepared) else []
    return sorted({f"some units run plain: {choice.reason}." for choice in choices if choice.runner == "plain"})


def choose_mode(
    spec: Spec,
    recipe: Recipe,
    size: int,
    device: torch.device,
    world: int,
    *,
    first: str | None = None,
    processes: int | None = None,
    warn: Callable[[str], None],
) -> str:
    """The fastest mode that fits into the memory there is; the mode `first`, if it fits too, for the same bits.

    `world` processes train; `processes` is how many the run began with, if not as many: it says how large the parts of
    a batch are.
    """
    batch = recipe.micro_batch or -(-recipe.batch // (processes or world))
    size = max([side for side, _ in recipe.size_steps], default=size)
    room = available(device)
    if room is not None and device.type == "cpu":
        room //= int(os.environ.get("LOCAL_WORLD_SIZE", world))
    if first is not None and forecast(spec, batch, size, first, device=device.type).fits(room):
        return first
    chosen = fastest(spec, batch, size, room, device.type)
    if not chosen.fits(room):
        warn(_too_much(chosen, room))
    return chosen.mode


def _too_much(chosen: MemoryEstimate, room: int | None) -> str:
    return (
        f"even memory mode {chosen.mode} takes about {chosen.added >> 20:,} MiB and there are {(room or 0) >> 20:,}; "
        "a smaller --micro-batch takes less."
    )
