"""Recompute BN's statistics over training images with the final weights, as the authors did."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from resnets.engine.threads import hold


def precise_bn(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace each BN's running mean and variance by their plain averages over the batches.

    Only BN is in training mode: the rest, a dropout shortcut say, does what it does in testing.
    """
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm)]  # SyncBatchNorm too
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    training = net.training
    try:
        net.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # PyTorch's word for a cumulative average
            norm.train()
        with torch.no_grad():
            for x in batches:
                hold()  # PyTorch's BN rounds by the number of threads
                net(x)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        net.train(training)
