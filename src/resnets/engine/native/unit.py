"""A unit run by the kernels: F as one function, the rest as the unit says."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from resnets.engine.inplace_unit import split_layers
from resnets.engine.native.branch import Branch, Step
from resnets.engine.native.kernels import Kernels
from resnets.nn import Unit
from resnets.nn.conv import Subsampled
from resnets.nn.shortcuts import Identity

_ENDINGS = (["+"], ["bn", "+", "relu"], ["bn", "relu", "+"])  # of units that the kernels finish themselves
_WIDEST = 256  # a 3x3 convolution of more channels has filters that leave the caches: PyTorch's is faster


class NativeUnit:
    """x -> f(h(x) + F(x)), as `Unit` does it. `sums` of x and x x, where the unit before has them, save a pass."""

    def __init__(self, unit: Unit, kernels: Kernels) -> None:
        self.unit = unit
        self.convs, (*acts, tail) = split_layers(unit)
        steps = list(map(_step, self.convs, acts))
        self.norms = [m for m in unit.modules() if isinstance(m, nn.BatchNorm2d)]
        ending = [*dict(tail.named_children()), "+", *dict(unit.after.named_children())]
        self.joins = isinstance(unit.shortcut, Identity) and ending in _ENDINGS
        bn = getattr(tail, "bn", None) if self.joins else None
        self.branch = Branch(kernels, steps, self.joins, bn, relu_first=ending[-1] == "+")
        self.tail = tail

    def __call__(self, x: Tensor) -> Tensor:
        return self.with_sums(x, None)[0]

    def with_sums(self, x: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor | None]:
        unit = self.unit
        if not self._suits(x):
            return unit(x), None
        if len(unit.shared):
            x, sums = unit.shared(x), None
        h = unit.resize(x)
        r, sums = self.branch(x, sums, h)
        return (r, sums) if self.joins else (unit.after(unit.shortcut(h, self.tail(r))), None)

    def _suits(self, x: Tensor) -> bool:
        """Float32 on the CPU, in a training step with nothing frozen by the user; else the unit itself is run."""
        return (
            type(x) is Tensor
            and _is_plain(x)
            and not torch.is_autocast_enabled("cpu")
            and all(_is_plain(conv.weight) and conv.weight.requires_grad for conv in self.convs)
            and all(norm.training and _has_plain_vectors(norm) for norm in self.norms)
        )


def _is_plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu"


def _has_plain_vectors(norm: nn.BatchNorm2d) -> bool:
    """Whether the kernels can read and write the numbers of a BN where they lie in memory."""
    vectors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    learned = norm.weight.requires_grad and norm.bias.requires_grad
    return learned and all(v is not None and _is_plain(v) and v.is_contiguous() for v in vectors)


def _step(conv: nn.Conv2d, act: nn.Module) -> Step:
    wide = max(conv.in_channels, conv.out_channels)
    native = conv.stride == (1, 1) and (conv.kernel_size == (1, 1) or (conv.kernel_size == (3, 3) and wide <= _WIDEST))
    return Step(conv, getattr(act, "bn", None), hasattr(act, "relu"), native)


def fits(unit: Unit) -> str | None:
    """Why the kernels cannot run a unit, or None."""
    for module in unit.modules():
        if isinstance(module, nn.Conv2d) and (module.in_channels % 8 or module.out_channels % 8):
            return "the kernels want channels in multiples of 8"
    if any(isinstance(module, Subsampled) for module in unit.residual):
        return "a strided 1x1 convolution reads too few channels"
    return None
