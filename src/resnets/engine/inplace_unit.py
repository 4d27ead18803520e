"""A unit run as PyTorch runs it, with ReLU and addition in place where no other layer reads the map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from resnets.nn import Unit
from resnets.nn.shortcuts import Identity


class InplaceUnit:
    """x -> f(h(x) + F(x)): what `Unit` computes, with fewer temporary maps."""

    keeps = True  # what BN-ReLU leaves, for the backward pass

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.convs, self.acts = split_layers(unit)

    def __call__(self, x: Tensor) -> Tensor:
        h, r = self.split(x)
        for act, conv in zip(self.acts[1:], self.convs[1:], strict=False):
            r = self.read(r, act, conv)
        return self.join(h, r)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The shortcut's x, resized, and what the first convolution of F makes of x."""
        x = self.act(self.unit.shared, x)
        return self.unit.resize(x), self.read(x, self.acts[0], self.convs[0])

    def join(self, h: Tensor, r: Tensor) -> Tensor:
        """What the last convolution left, its activation, the shortcut's equation, f."""
        r = self.act(self.acts[-1], r)
        ours = bn_of(self.acts[-1]) is None or not self.keeps  # ReLU keeps what it leaves
        in_place = ours and isinstance(self.unit.shortcut, Identity) and h.dtype == r.dtype
        y = r.add_(h) if in_place else self.unit.shortcut(h, r)
        return torch.relu_(y) if _is_relu(self.unit.after) else self.act(self.unit.after, y)

    def read(self, x: Tensor, act: nn.Module, conv: nn.Module) -> Tensor:
        """A convolution behind its activation."""
        return conv(self.act(act, x))

    def act(self, layers: nn.Module, x: Tensor) -> Tensor:
        bn = bn_of(layers)
        return layers(x) if bn is None else torch.relu_(bn(x))


def split_layers(unit: Unit) -> tuple[list[nn.Conv2d], list[nn.Module]]:
    """The convolutions of F, and its activations in front of each and behind the last; empty where there is none."""
    convs: list[nn.Conv2d] = []
    acts: list[nn.Module] = [nn.Sequential()]
    for layer in unit.residual:
        if isinstance(layer, nn.Conv2d):
            convs.append(layer)
            acts.append(nn.Sequential())
        else:
            acts[-1] = layer
    return convs, acts


def bn_of(layers: nn.Module) -> nn.Module | None:
    """The BN of layers that are BN, ReLU."""
    found = list(layers.children())
    return found[0] if [type(layer) for layer in found] == [nn.BatchNorm2d, nn.ReLU] else None


def _is_relu(layers: nn.Module) -> bool:
    return [type(layer) for layer in layers.children()] == [nn.ReLU]
