"""Limit the norms of filters after each step (Srebro 2005; Goodfellow 2013)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from resnets.errors import UserError
from resnets.nn.initialization import list_layers

_TINY = 1e-7  # added to a norm, as pylearn2 does


def pair_limits(net: nn.Module, limits: tuple[float, ...]) -> list[tuple[nn.Parameter, float]]:
    """The weights with their limits: one for each layer in turn, the rest unlimited, or one for all layers."""
    layers = list_layers(net)
    if len(limits) == 1:
        limits *= len(layers)
    if len(limits) > len(layers):
        raise UserError(f"max_norm has {len(limits)} numbers, and the network only {len(layers)} layers with weights.")
    return list(_pairs(layers, limits))


def _pairs(layers: list[nn.Conv2d | nn.Linear], limits: tuple[float, ...]) -> Iterator[tuple[nn.Parameter, float]]:
    for layer, limit in zip(layers, limits, strict=False):
        yield layer.get_parameter("weight"), limit


@torch.no_grad()
def apply_limits(pairs: list[tuple[nn.Parameter, float]]) -> None:
    """Scale each filter whose norm is too large to its limit."""
    for weight, limit in pairs:
        norms = weight.flatten(1).norm(dim=1)
        weight.mul_((norms.clamp_max(limit) / (norms + _TINY)).view(-1, *[1] * (weight.dim() - 1)))
