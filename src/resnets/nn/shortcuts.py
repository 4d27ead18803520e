"""h: the shortcut of a unit. Each module takes x and r = F(x), and its forward is its equation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets import spec as specs
from resnets.errors import UserError
from resnets.nn.conv import conv
from resnets.spec import SHORTCUTS, Shortcut, Spec


class Identity(nn.Module):
    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return x + r


class Scale(nn.Module):
    def __init__(self, shortcut: float, residual: float) -> None:
        super().__init__()
        self.a, self.b = shortcut, residual

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return self.a * x + self.b * r


class Gate(nn.Conv2d):
    """g(x) = sigmoid(W_g x + b_g), a 1x1 convolution whose bias starts at b_g."""

    def __init__(self, channels: int, bias: float) -> None:
        super().__init__(channels, channels, 1)
        self.initial_bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))


class ExclusiveGate(nn.Module):
    def __init__(self, channels: int, bias: float) -> None:
        super().__init__()
        self.gate = Gate(channels, bias)

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        g = self.gate(x)
        return (1 - g) * x + g * r


class ShortcutGate(nn.Module):
    def __init__(self, channels: int, bias: float) -> None:
        super().__init__()
        self.gate = Gate(channels, bias)

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return (1 - self.gate(x)) * x + r


class Dropout(nn.Module):
    def __init__(self, p: float, rescale: bool) -> None:
        super().__init__()
        self.p, self.rescale = p, rescale

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        if self.rescale:
            return functional.dropout(x, self.p, self.training) + r
        if not self.training:
            return (1 - self.p) * x + r
        return x * torch.empty_like(x).bernoulli_(1 - self.p) + r


class Plain(nn.Module):
    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return r


def make(shortcut: Shortcut, channels: int) -> nn.Module:
    """The module of a shortcut on maps of `channels`."""
    if type(shortcut) not in SHORTCUTS.values():  # a subclass may mean another equation
        raise UserError(f"there is no module for the shortcut {shortcut!r}; choose one of {', '.join(SHORTCUTS)}.")
    match shortcut:
        case specs.Scale(a, b):
            return Scale(a, b)
        case specs.ExclusiveGate(bias):
            return ExclusiveGate(channels, bias)
        case specs.ShortcutGate(bias):
            return ShortcutGate(channels, bias)
        case specs.Dropout(p, rescale):
            return Dropout(p, rescale)
        case specs.Plain():
            return Plain()
    return Identity()  # Conv1x1 too: its weights are the projection below


# --- resizing the shortcut: options A, B, C of v1 ---------------------------------------------


class Pad(nn.Module):
    """Option A: a smaller map by subsampling or pooling, more channels by zeros. No parameters."""

    def __init__(self, into: int, out: int, stride: int, form: str) -> None:
        super().__init__()
        front = (out - into) // 2 if form == "pad_both" else 0
        self.zeros = (0, 0, 0, 0, front, out - into - front)
        self.stride, self.pool = stride, form == "pad_pool"

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            if self.pool:  # an odd map's last pixels are averaged among themselves
                x = functional.avg_pool2d(x, self.stride, ceil_mode=True, count_include_pad=False)
            else:
                x = x[:, :, :: self.stride, :: self.stride]
        return functional.pad(x, self.zeros)


def projection(net: Spec, into: int, out: int, stride: int) -> nn.Sequential:
    """Options B and C: a 1x1 convolution, and BN unless the net normalises in front of weights."""
    layers = nn.Sequential()
    layers.add_module("conv", conv(into, out, 1, stride))
    if specs.ORDERS[net.order].projection_bn:
        layers.add_module("bn", nn.BatchNorm2d(out, net.bn_eps, net.bn_momentum))
    return layers


def projects(net: Spec, into: int, out: int, stride: int) -> bool:
    """Whether the shortcut of such a unit has weights of its own."""
    changes = into != out or stride > 1
    return isinstance(net.shortcut, specs.Conv1x1) or (
        changes and net.resize == "project" and not isinstance(net.shortcut, specs.Plain)
    )


def resize(net: Spec, into: int, out: int, stride: int) -> nn.Module:
    """What brings x to the shape of F(x) before the shortcut's equation."""
    if projects(net, into, out, stride):
        return projection(net, into, out, stride)
    if isinstance(net.shortcut, specs.Plain) or (into == out and stride == 1):
        return nn.Identity()
    return Pad(into, out, stride, net.resize)
