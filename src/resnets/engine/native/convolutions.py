"""Convolutions with a bias and perhaps ReLU behind each, as one function: units whose BN is fixed, VGG's stages.

A fixed BN goes into the filters and the bias of the convolution in front of it. Bias, shortcut and ReLU are computed
where a convolution leaves its result, so each map is kept as the next convolution reads it. Backward, ReLU's mask is
computed where a gradient leaves a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnets.engine.native.kernels import (
    ACT,
    ADD,
    AFFINE,
    MASK,
    OFFSET,
    OFFSET_RELU,
    RAW,
    Kernels,
    Sink,
    Source,
)

_LAST = torch.channels_last


class Layer(NamedTuple):
    """A convolution padded by half its side, by filters that may be computed from others."""

    weight: Tensor
    bias: Tensor
    stride: int = 1
    relu: bool = False


class _Call(NamedTuple):
    """What is no tensor of the function."""

    kernels: Kernels
    strides: list[int]
    relus: list[bool]
    before: tuple[Tensor, Tensor] | None


def convolve(
    kernels: Kernels,
    x: Tensor,
    layers: Sequence[Layer],
    *,
    before: tuple[Tensor, Tensor] | None = None,
    h: Tensor | None = None,
) -> Tensor:
    """x through layers. `before` are scale and offset of an affine ReLU in front, which are not trained; h is added in
    front of the last ReLU.
    """
    call = _Call(kernels, [layer.stride for layer in layers], [layer.relu for layer in layers], before)
    filters = [layer.weight for layer in layers]
    return _Run.apply(call, x, h, *filters, *(layer.bias for layer in layers))  # type: ignore[no-untyped-call]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, h: Tensor | None, *parameters: Tensor) -> Tensor:
        same = h is x
        y = x.contiguous(memory_format=_LAST)
        h = y if same else None if h is None else h.contiguous(memory_format=_LAST)
        count = len(call.strides)
        maps: list[Tensor] = [y]
        for i, (weight, bias) in enumerate(zip(parameters[:count], parameters[count:], strict=True)):
            end = OFFSET_RELU if call.relus[i] else OFFSET
            sink = Sink(end, add=h if i + 1 == count else None, d=bias)
            y, _ = call.kernels.conv(_read(call, i, y), weight, sink, stride=call.strides[i])
            maps.append(y)
        ctx.call, ctx.same = call, same
        ctx.save_for_backward(*(maps if call.relus[-1] else maps[:-1]), *parameters[:count])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        call: _Call = ctx.call
        count, kernels = len(call.strides), call.kernels
        saved = ctx.saved_tensors
        maps, weights = saved[:-count], saved[-count:]
        _, of_x_wanted, of_h_wanted, *learns = ctx.needs_input_grad
        gradient, sums = grad.contiguous(memory_format=_LAST), None
        of_weights: list[Tensor | None] = [None] * count
        of_biases: list[Tensor | None] = [None] * count
        if call.relus[-1] or learns[-1]:
            sink = Sink(MASK, m=maps[-1], sums=learns[-1]) if call.relus[-1] else Sink(sums=True)
            masked, sums = kernels.transform(Source(RAW, gradient), sink, keep=call.relus[-1])
            gradient = masked if call.relus[-1] else gradient
        whole = gradient  # what goes to h
        for i in reversed(range(count)):
            if learns[count + i]:
                assert sums is not None
                of_biases[i] = sums[0].float()
            out = None
            if i > 0:
                relu, summed = call.relus[i - 1], learns[count + i - 1]
                out = Sink(MASK, m=maps[i], sums=summed) if relu else Sink(sums=summed)
            elif of_x_wanted:
                out = _leave(call, maps[0], whole if ctx.same else None)
            of_weights[i], found, sums = kernels.conv_backward(
                _read(call, i, maps[i]),
                Source(RAW, gradient),
                weights[i],
                out,
                stride=call.strides[i],
                learns=learns[i],
            )
            if found is not None:
                gradient = found
        of_x = gradient if of_x_wanted else None
        if of_x is not None and call.before is not None:
            scale, zero = call.before[0], torch.zeros_like(call.before[0])
            sink = Sink(ADD, add=whole) if ctx.same else Sink()
            of_x, _ = kernels.transform(Source(AFFINE, of_x, a=scale, d=zero), sink, over=True)
        return None, of_x, whole if of_h_wanted and not ctx.same else None, *of_weights, *of_biases


def _read(call: _Call, layer: int, x: Tensor) -> Source:
    """x as a layer reads it."""
    if layer == 0 and call.before is not None:
        return Source(ACT, x, a=call.before[0], d=call.before[1])
    return Source(RAW, x)


def _leave(call: _Call, x: Tensor, whole: Tensor | None) -> Sink:
    """How the gradient of x leaves the first convolution; the scale of an affine ReLU in front is still to come."""
    if call.before is not None:
        return Sink(MASK, m=x, a=call.before[0], d=call.before[1])
    return Sink() if whole is None else Sink(ADD, add=whole)
