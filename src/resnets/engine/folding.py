"""Layers for inference: BN is folded into weights, and maps are read and written as rarely as possible."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from resnets.engine import onednn
from resnets.errors import UserError
from resnets.nn import Unit
from resnets.nn.shortcuts import Identity


def to_affine(bn: _BatchNorm) -> tuple[Tensor, Tensor]:
    """BN in eval mode as scale x + shift: both in float64, so that folding adds no rounding error."""
    numbers: list[Any] = [bn.weight, bn.bias, bn.running_mean, bn.running_var]  # every BN of the package has them
    weight, bias, mean, variance = (tensor.detach().double() for tensor in numbers)
    scale = weight / torch.sqrt(variance + bn.eps)
    return scale, bias - mean * scale


class Conv(nn.Module):
    """relu(W x + b + plus): a convolution with the BN and ReLU behind it, and the addition if it is the last of F."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.stride, self.padding = tuple(conv.stride), tuple(map(int, conv.padding))
        self.relu = False
        self.register_buffer("weight", conv.weight.detach().clone())
        self.register_buffer("bias", None if conv.bias is None else conv.bias.detach().clone())
        self._packed: tuple[Any, Tensor] | None = None  # for the weights and maps seen last

    def fold(self, bn: _BatchNorm) -> None:
        (scale, shift), dtype = to_affine(bn), self.weight.dtype
        bias = 0 if self.bias is None else self.bias.double()
        self.weight = (self.weight.double() * scale.view(-1, 1, 1, 1)).to(dtype)
        self.bias = (bias * scale + shift).to(dtype)

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`plus` may be overwritten."""
        if onednn.takes(x):
            packed = self._pack(x.shape)
            return onednn.conv(x, packed, self.bias, self.stride, self.padding, relu=self.relu, plus=plus)
        y = functional.conv2d(x, self.weight, self.bias, self.stride, self.padding)
        if plus is not None:
            y += plus
        return y.relu_() if self.relu else y

    def _pack(self, shape: torch.Size) -> Tensor:
        weight = self.weight
        seen = (id(weight), None if weight.is_inference() else weight._version, self.stride, self.padding, shape)
        if self._packed is None or self._packed[0] != seen:
            self._packed = seen, onednn.pack(weight, self.stride, self.padding, shape)
        return self._packed[1]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Conv:
        self._packed = None  # another device or dtype
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._packed = None  # other weights
        super()._load_from_state_dict(*args, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # its memory is oneDNN's own and cannot be copied


class ScaleShift(nn.Module):
    """relu(scale x + shift): a BN that no convolution precedes, and its ReLU."""

    scale: Tensor
    shift: Tensor

    def __init__(self, bn: _BatchNorm) -> None:
        super().__init__()
        self.relu = False
        for name, numbers in zip(("scale", "shift"), to_affine(bn), strict=True):
            self.register_buffer(name, numbers.to(bn.weight.dtype).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addcmul(self.shift, x, self.scale)
        return y.relu_() if self.relu else y


def leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested sequences, in order."""
    if isinstance(module, nn.Sequential):  # as the spec describes it
        for child in module:
            yield from leaves(child)
    else:
        yield module


def fold(module: nn.Module) -> list[nn.Module]:
    """The same function in fewer steps: BN goes into the convolution before it, ReLU into either.

    The module must be as its spec describes it.
    """
    steps: list[nn.Module] = []
    for layer in leaves(module):
        before = steps[-1] if steps else None
        if isinstance(layer, nn.Conv2d):
            steps.append(Conv(layer))
        elif isinstance(layer, _BatchNorm) and isinstance(before, Conv) and not before.relu:
            before.fold(layer)
        elif isinstance(layer, _BatchNorm):
            steps.append(ScaleShift(layer))
        elif isinstance(layer, nn.ReLU) and isinstance(before, (Conv, ScaleShift)):
            before.relu = True
        elif not isinstance(layer, nn.Identity):
            steps.append(copy.deepcopy(layer))
    return steps


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy. PyTorch cannot copy weights that are computed from others, as by torch.nn.utils."""
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:
        raise UserError(f"a network with computed weights cannot be frozen ({error}); make them plain first.") from None


class FrozenUnit(nn.Module):
    """f(h(x) + F(x)). Where h is x or its resize alone, the last convolution of F adds it and applies a bare ReLU."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        *residual, last = fold(unit.residual)
        after = fold(unit.after)
        self.adds = False
        if isinstance(unit.shortcut, Identity) and isinstance(last, Conv) and not last.relu:
            self.adds = True
            if [type(step) for step in after] == [nn.ReLU]:
                last.relu, after = True, []
        self.shared = nn.Sequential(*fold(unit.shared))
        self.resize = nn.Sequential(*fold(unit.resize))
        self.residual, self.last = nn.Sequential(*residual), last
        self.shortcut = copy_module(unit.shortcut)
        self.after = nn.Sequential(*after)

    def forward(self, x: Tensor) -> Tensor:
        """May overwrite x, which nothing else reads."""
        x = self.shared(x)
        h, r = self.resize(x), self.residual(x)
        return self.after(self.last(r, plus=h) if self.adds else self.shortcut(h, self.last(r)))
