"""How many numbers a training step of a chain keeps, from shapes."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from resnets.chain import Chain, Sides
from resnets.nn import ChainNet

_PASSING = 2  # the largest maps that come and go beside those that are kept: a gradient, and the next one


@lru_cache(maxsize=64)
def count_chain(spec: Chain, sides: Sides) -> tuple[int, int]:
    """Parameters, and the numbers of all maps of one image that are kept for the backward pass or pass by.

    Every layer keeps what it reads; what a layer writes is what the next one reads, so all maps are counted once.
    """
    kept, largest = 0, 0

    def count(module: nn.Module, inputs: object, output: Tensor) -> None:
        nonlocal kept, largest
        kept += output.numel()
        largest = max(largest, output.numel())

    with torch.device("meta"), torch.no_grad():
        net = ChainNet(spec)
        for module in net.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        net(torch.empty(1, spec.in_channels, *sides), aux=bool(spec.heads))
    return sum(p.numel() for p in net.parameters()), kept + _PASSING * largest
