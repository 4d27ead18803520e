"""The unit of the papers: y = h(x) + F(x), x' = f(y)."""

from __future__ import annotations

from torch import Tensor, nn

from resnets.nn import shortcuts
from resnets.nn.conv import conv
from resnets.spec import Spec
from resnets.unit_spec import UnitSpec


def activation(words: tuple[str, ...], channels: int, norm: Spec | UnitSpec) -> nn.Sequential:
    """`("bn", "relu")` as layers of those names; no words make the identity."""
    layers = nn.Sequential()
    for word in words:
        layer = nn.BatchNorm2d(channels, norm.bn_eps, norm.bn_momentum) if word == "bn" else nn.ReLU()
        layers.add_module(word, layer)
    return layers


class Residual(nn.Sequential):
    """F: an optional head activation, convolutions with BN-ReLU between them, an optional tail.

    original, basic: 3x3, BN, ReLU, 3x3, BN. full_preact, bottleneck: BN, ReLU, 1x1, BN, ReLU, 3x3, BN,
    ReLU, 1x1. The stride is on one convolution.
    """

    def __init__(self, unit: UnitSpec) -> None:
        super().__init__()
        channels = unit.into
        for i, words in enumerate(unit.acts):
            if i:
                self.add_module(f"conv{i}", conv(*unit.convs[i - 1]))
                channels = unit.convs[i - 1].out
            if words:
                self.add_module(f"act{i}" if i else "before", activation(words, channels, unit))


class Unit(nn.Module):
    """x -> f(h(x) + F(x)), as its spec says; what both paths read activated stands in front of the split (`shared`)."""

    def __init__(self, unit: UnitSpec) -> None:
        super().__init__()
        self.spec = unit
        self.shared = activation(unit.shared, unit.into, unit)
        self.residual = Residual(unit)
        self.resize = shortcuts.resize(unit)
        self.shortcut = shortcuts.make(unit.shortcut, unit.out)
        self.after = activation(unit.after, unit.out, unit)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shared(x)
        return self.after(self.shortcut(self.resize(x), self.residual(x)))
