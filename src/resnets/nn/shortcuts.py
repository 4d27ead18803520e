"""h: the shortcut of a unit. Each module takes x and r = F(x), and its forward is its equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets import unit_spec as specs
from resnets.errors import UserError, shown
from resnets.nn.conv import conv
from resnets.unit_spec import Shortcut, UnitSpec, check_shortcut


class Graph(Protocol):
    """An ONNX graph that is being written; each method adds to it and returns the name of its result."""

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str: ...
    def constant(self, values: Tensor | float | list[int]) -> str: ...
    def times(self, a: float | str, b: str) -> str: ...
    def conv(self, conv: nn.Conv2d, x: str) -> str: ...


class ShortcutModule(nn.Module):
    """A shortcut that can give its factors and its ONNX form.

    A shortcut of your own may be any `nn.Module` of x and r. As a `ShortcutModule` it can override these methods.
    """

    keeps_maps = False  # for the backward pass, beside x and r

    def factor(self) -> float | None:
        """lambda of h(x) = lambda x, as it follows from the shortcut's own numbers; None if they do not tell."""
        return None

    def residual_factor(self, x: Tensor) -> Tensor | float | None:
        """What multiplies r at the addition; None if it is to be measured."""
        return None

    def onnx(self, graph: Graph, x: str, r: str) -> str | None:
        """Add the equation in testing to an ONNX graph; the name of its result, or None if there is no such form."""
        return None


class _Sum(ShortcutModule):
    """h(x) + r, where r is as it is."""

    def residual_factor(self, x: Tensor) -> Tensor | float:
        return 1.0


class Identity(_Sum):
    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return x + r

    def factor(self) -> float:
        return 1.0

    def onnx(self, graph: Graph, x: str, r: str) -> str:
        return graph.add("Add", x, r)


class Scale(ShortcutModule):
    def __init__(self, shortcut: float, residual: float) -> None:
        super().__init__()
        self.a, self.b = shortcut, residual

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return self.a * x + self.b * r

    def factor(self) -> float:
        return self.a

    def residual_factor(self, x: Tensor) -> float:
        return self.b

    def onnx(self, graph: Graph, x: str, r: str) -> str:
        return graph.add("Add", graph.times(self.a, x), graph.times(self.b, r))


class Gate(nn.Conv2d):
    """g(x) = sigmoid(W_g x + b_g), a 1x1 convolution whose bias starts at b_g."""

    def __init__(self, channels: int, bias: float) -> None:
        super().__init__(channels, channels, 1)
        self.initial_bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))


class ShortcutGate(_Sum):
    keeps_maps = True

    def __init__(self, channels: int, bias: float) -> None:
        super().__init__()
        self.gate = Gate(channels, bias)

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return (1 - self.gate(x)) * x + r

    def factor(self) -> float:
        """The gate is taken at its bias, as if W_g x were 0: the mean over channels."""
        return (1 - torch.sigmoid(self.gate.get_parameter("bias"))).mean().item()

    def onnx(self, graph: Graph, x: str, r: str) -> str:
        return graph.add("Add", self._rest(graph, self._gate(graph, x), x), r)

    def _gate(self, graph: Graph, x: str) -> str:
        return graph.add("Sigmoid", graph.conv(self.gate, x))

    def _rest(self, graph: Graph, g: str, x: str) -> str:
        """(1 - g) x."""
        return graph.times(graph.add("Sub", graph.constant(1.0), g), x)


class ExclusiveGate(ShortcutGate):
    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        g = self.gate(x)
        return (1 - g) * x + g * r

    def residual_factor(self, x: Tensor) -> Tensor:
        return self.gate(x)

    def onnx(self, graph: Graph, x: str, r: str) -> str:
        g = self._gate(graph, x)
        return graph.add("Add", self._rest(graph, g, x), graph.times(g, r))


class Dropout(_Sum):
    keeps_maps = True

    def __init__(self, p: float, rescale: bool) -> None:
        super().__init__()
        self.p, self.rescale = p, rescale

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        if self.rescale:
            return functional.dropout(x, self.p, self.training) + r
        if not self.training:
            return (1 - self.p) * x + r
        return x * torch.empty_like(x).bernoulli_(1 - self.p) + r

    def factor(self) -> float:
        """The keep rate."""
        return 1.0 if self.rescale else 1 - self.p

    def onnx(self, graph: Graph, x: str, r: str) -> str:
        return graph.add("Add", x if self.rescale else graph.times(1 - self.p, x), r)


class Plain(_Sum):
    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        return r

    def factor(self) -> float:
        return 0.0

    def onnx(self, graph: Graph, x: str, r: str) -> str:
        return r


_PAPERS: dict[type[Shortcut], Callable[[Any, int], nn.Module]] = {  # of a shortcut and its channels
    specs.Identity: lambda _, channels: Identity(),
    specs.Scale: lambda scale, _: Scale(scale.shortcut, scale.residual),
    specs.ExclusiveGate: lambda gate, channels: ExclusiveGate(channels, gate.bias),
    specs.ShortcutGate: lambda gate, channels: ShortcutGate(channels, gate.bias),
    specs.Conv1x1: lambda _, channels: Identity(),  # its weights are the projection below
    specs.Dropout: lambda dropout, _: Dropout(dropout.p, dropout.rescale),
    specs.Plain: lambda _, channels: Plain(),
}


def make(shortcut: Shortcut, channels: int) -> nn.Module:
    """The module of a shortcut on maps of `channels`."""
    check_shortcut(shortcut)
    if not shortcut.is_custom:
        return _PAPERS[type(shortcut)](shortcut, channels)
    where = f"module of the shortcut {shortcut.kind!r}"
    try:
        module = shortcut.module(channels)
    except Exception as error:
        raise UserError(f"{where} fails with {type(error).__name__}: {shown(str(error))}.") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"{where} must return a torch.nn.Module, not {shown(module)}.")
    return module


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


def projection(unit: UnitSpec) -> nn.Sequential:
    """Options B and C: a 1x1 convolution, and BN unless the net normalises in front of weights."""
    layers = nn.Sequential()
    layers.add_module("conv", conv(unit.into, unit.out, 1, unit.stride))
    if unit.projection_bn:
        layers.add_module("bn", nn.BatchNorm2d(unit.out, unit.bn_eps, unit.bn_momentum))
    return layers


def resize(unit: UnitSpec) -> nn.Module:
    """What brings x to the shape of F(x) before the shortcut's equation."""
    if unit.projects:
        return projection(unit)
    return Pad(unit.into, unit.out, unit.stride, unit.resize) if unit.resize else nn.Identity()
