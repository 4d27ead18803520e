"""The unit of the papers: y = h(x) + F(x), x' = f(y)."""

from __future__ import annotations

from torch import Tensor, nn

from resnets.nn import shortcuts
from resnets.nn.conv import conv
from resnets.spec import ORDERS, Spec


def activation(words: tuple[str, ...], channels: int, net: Spec) -> nn.Sequential:
    """`("bn", "relu")` as layers of those names; no words make the identity."""
    layers = nn.Sequential()
    for word in words:
        layer = nn.BatchNorm2d(channels, net.bn_eps, net.bn_momentum) if word == "bn" else nn.ReLU()
        layers.add_module(word, layer)
    return layers


class Residual(nn.Sequential):
    """F: an optional head activation, convolutions with BN-ReLU between them, an optional tail.

    original, basic: 3x3, BN, ReLU, 3x3, BN. full_preact, bottleneck: BN, ReLU, 1x1, BN, ReLU, 3x3, BN,
    ReLU, 1x1. The stride is on one convolution.
    """

    def __init__(self, net: Spec, into: int, width: int, stride: int, head: tuple[str, ...]) -> None:
        super().__init__()
        widths = [into] + [width] * (len(net.kernels) - 1) + [width * net.expansion]
        strided = net.kernels.index(3) if net.stride_on == "3x3" and 3 in net.kernels else 0
        if head:
            self.add_module("before", activation(head, into, net))
        for i, k in enumerate(net.kernels):
            step = stride if i == strided else 1
            self.add_module(f"conv{i + 1}", conv(widths[i], widths[i + 1], k, step))
            last = i + 1 == len(net.kernels)
            words = ORDERS[net.order].last if last else ("bn", "relu")
            if words:
                self.add_module(f"act{i + 1}", activation(words, widths[i + 1], net))


class Unit(nn.Module):
    """x -> f(h(x) + F(x)), on maps of `into` channels, leaving `out`.

    A pre-activation unit whose shortcut has weights activates x once, in front of the split, for both
    paths (`shared`); every other unit leaves its shortcut raw. `first` is the unit right after a stem
    that has already activated.
    """

    def __init__(self, net: Spec, into: int, width: int, stride: int, first: bool) -> None:
        super().__init__()
        order = ORDERS[net.order]
        out = width * net.expansion
        changes = into != out or stride > 1
        shares = shortcuts.projects(net, into, out, stride) or (changes and net.share_activation == "resize")
        head = () if first else order.before
        self.shared = activation(head if shares else (), into, net)
        self.residual = Residual(net, into, width, stride, () if shares else head)
        self.resize = shortcuts.resize(net, into, out, stride)
        self.shortcut = shortcuts.make(net.shortcut, out)
        self.after = activation(order.after, out, net)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shared(x)
        return self.after(self.shortcut(self.resize(x), self.residual(x)))
