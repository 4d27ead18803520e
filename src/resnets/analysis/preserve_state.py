"""Run a network and leave its state unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def preserve_state(net: nn.Module, *, training: bool) -> Iterator[None]:
    """`net` in training or in evaluation for a while, and then every module as it was.

    In training BN normalises by the batch and leaves its running statistics alone; what a user's own shortcut changes
    in its buffers is undone. The global random numbers go on afterwards as if nothing had been drawn.
    """
    modes = [(module, module.training) for module in net.modules()]
    buffers = [(m, name, b, b.clone()) for m, _ in modes for name, b in m._buffers.items() if b is not None]
    norms: list[Any] = [module for module, _ in modes if hasattr(module, "track_running_stats")]
    tracking = [(norm, norm.track_running_stats) for norm in norms]
    devices = {p.device for p in net.parameters() if p.device.type == "cuda"}
    try:
        net.train(training)
        for norm, tracks in tracking:
            norm.track_running_stats = tracks and not training
        with torch.random.fork_rng(list(devices)):
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for norm, tracks in tracking:
            norm.track_running_stats = tracks
        for module, name, buffer, kept in buffers:
            module._buffers[name] = buffer.copy_(kept)
