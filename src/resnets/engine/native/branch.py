"""A residual branch as one function: convolutions behind their activations, then the meeting with the shortcut.

Forward it keeps x and what each convolution produced. BN-ReLU is computed on the way into the next convolution, the
addition and the sums for the BN behind it on the way out. Backward the same: ReLU's mask and BN's sums are made where a
gradient leaves a convolution, BN's formula where it enters the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from resnets.engine.native.kernels import (
    ACT,
    ADD,
    ADD_RELU,
    AFFINE,
    LINEAR,
    MASK,
    PLAIN,
    RAW,
    RELU,
    Kernels,
    Normalized,
    Sink,
    Source,
)

_LAST = torch.channels_last


class Step(NamedTuple):
    """One convolution and the activation in front of it."""

    conv: nn.Conv2d
    bn: nn.BatchNorm2d | None
    relu: bool
    native: bool  # or by PyTorch's convolution, between passes of ours


@dataclass(frozen=True)
class Branch:
    """F of a unit, and how it ends: r, h + r, ReLU(h + BN(r)) (the original unit), or h + ReLU(BN(r))."""

    kernels: Kernels
    steps: list[Step]
    adds: bool  # h is added here
    tail: nn.BatchNorm2d | None = None
    relu_first: bool = False

    @property
    def norms(self) -> list[nn.BatchNorm2d | None]:
        """In the order in which a map meets them."""
        return [step.bn for step in self.steps] + ([] if self.tail is None else [self.tail])

    def __call__(self, x: Tensor, sums: Tensor | None, h: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The end of the branch, and its sums for a BN behind it. `sums` are those of x, where they are known."""
        parameters = [step.conv.weight for step in self.steps]
        parameters += [p for bn in self.norms if bn is not None for p in (bn.weight, bn.bias)]
        return _Run.apply(self, sums, x, h if self.adds else None, *parameters)  # type: ignore[no-untyped-call]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, branch: Branch, sums: Tensor | None, x: Tensor, h: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        kernels, steps = branch.kernels, branch.steps
        same = h is x
        y = x.contiguous(memory_format=_LAST)
        h = y if same else None if h is None else h.contiguous(memory_format=_LAST)
        maps: list[Tensor] = []
        norms: list[Normalized | None] = []
        for i, step in enumerate(steps):
            maps.append(y)
            norms.append(None if step.bn is None else _normalize(kernels, step.bn, y, sums))
            behind = steps[i + 1].bn if i + 1 < len(steps) else branch.tail
            last = i + 1 == len(steps) and branch.tail is None
            sink = Sink(ADD, add=h, sums=True) if last and h is not None else Sink(sums=behind is not None)
            y, sums = _convolve(kernels, step, _activate(step, y, norms[-1]), sink)
        if branch.tail is not None:
            assert h is not None
            maps.append(y)
            norm = _normalize(kernels, branch.tail, y, sums)
            norms.append(norm)
            way, end = (ACT, ADD) if branch.relu_first else (AFFINE, ADD_RELU)
            y, sums = kernels.transform(Source(way, y, a=norm.a, d=norm.d), Sink(end, add=h))
        ctx.branch, ctx.same, ctx.maps = branch, same, len(maps)
        ended = [y] if branch.tail is not None and not branch.relu_first else []
        statistics = [tensor for norm in norms if norm is not None for tensor in norm]
        ctx.save_for_backward(*maps, *statistics, *ended, *(step.conv.weight for step in steps))
        if sums is not None:
            ctx.mark_non_differentiable(sums)
        return y, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        branch: Branch = ctx.branch
        kernels, steps = branch.kernels, branch.steps
        saved = list(ctx.saved_tensors)  # asked for once, as checkpointing wants it
        maps, weights, rest = saved[: ctx.maps], saved[-len(steps) :], iter(saved[ctx.maps :])
        norms = [Normalized(*islice(rest, 4)) if bn is not None else None for bn in branch.norms]
        whole = grad.contiguous(memory_format=_LAST)  # what goes to h
        gradient = Source(RAW, whole)
        of_norms: list[Tensor] = []
        if branch.tail is not None:
            c, norm = maps.pop(), norms.pop()
            assert norm is not None
            mask = Sink(MASK, m=c, a=norm.a, d=norm.d, q=c, c=norm.c, sums=True)
            if not branch.relu_first:  # ReLU stands behind the addition
                mask = Sink(MASK, m=next(rest), q=c, c=norm.c, sums=True)
            g, sums = kernels.transform(gradient, mask)
            whole = whole if branch.relu_first else g
            gradient, of_norms = _norm_back(kernels, branch.tail, norm, (g, sums), c)
        of_weights: list[Tensor] = []
        while maps:
            step, x, norm, weight = steps[len(maps) - 1], maps.pop(), norms.pop(), weights.pop()
            g, sums, of_weight = _convolve_back(kernels, step, _activate(step, x, norm), gradient, weight)
            of_weights.insert(0, of_weight)
            gradient = Source(RAW, g)
            if step.bn is not None and norm is not None:
                gradient, found = _norm_back(kernels, step.bn, norm, (g, sums), x)
                of_norms = found + of_norms
        adds = ctx.same and branch.adds
        of_x = gradient.x
        if gradient.way == LINEAR or adds:
            of_x, _ = kernels.transform(gradient, Sink(ADD, add=whole) if adds else Sink(), over=True)
        return None, None, of_x, None if ctx.same or not branch.adds else whole, *of_weights, *of_norms


def _normalize(kernels: Kernels, bn: nn.BatchNorm2d, x: Tensor, sums: Tensor | None) -> Normalized:
    if sums is None:
        _, sums = kernels.transform(Source(RAW, x), Sink(sums=True), keep=False)
    assert sums is not None
    return kernels.norm_forward(bn, sums, x.numel() // x.shape[1])


def _norm_back(
    kernels: Kernels, bn: nn.BatchNorm2d, norm: Normalized, passing: tuple[Tensor, Tensor | None], x: Tensor
) -> tuple[Source, list[Tensor]]:
    """The gradient in front of BN, to be computed where it is read, and those of gamma and beta."""
    g, sums = passing
    assert sums is not None
    gamma, beta, a, b, d = kernels.norm_backward(bn, norm, sums, x.numel() // x.shape[1])
    return Source(LINEAR, g, x, a, b, norm.c, d), [gamma, beta]


def _activate(step: Step, x: Tensor, norm: Normalized | None) -> Source:
    """x as the convolution of a step reads it."""
    if norm is None:
        return Source(RELU if step.relu else RAW, x)
    return Source(ACT, x, a=norm.a, c=norm.c, d=norm.d)


def _convolve(kernels: Kernels, step: Step, source: Source, sink: Sink) -> tuple[Tensor, Tensor | None]:
    if step.native:
        return kernels.conv(source, step.conv.weight, sink)
    y = torch.conv2d(_whole(kernels, source), step.conv.weight, None, step.conv.stride, step.conv.padding)
    y = y.contiguous(memory_format=_LAST)
    if sink.end == PLAIN:
        return y, kernels.transform(Source(RAW, y), sink, keep=False)[1] if sink.sums else None
    return kernels.transform(Source(RAW, y), sink)


def _convolve_back(
    kernels: Kernels, step: Step, source: Source, gradient: Source, weight: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradient in front of a step's ReLU (where it has one), its sums for BN, and the filters' gradient."""
    mask = Sink()
    if source.way != RAW:
        bn = step.bn is not None
        mask = Sink(MASK, m=source.x, a=source.a, d=source.d, q=source.x if bn else None, c=source.c, sums=bn)
    if step.native:
        of_weight = kernels.conv_filters(source, gradient, weight)
        return *kernels.conv(gradient, weight, mask, backward=True), of_weight
    conv = step.conv
    g, of_weight, _ = torch.ops.aten.convolution_backward(
        _whole(kernels, gradient), _whole(kernels, source), weight, None, conv.stride, conv.padding, (1, 1), False,
        (0, 0), 1, (True, True, False),
    )  # fmt: skip
    g = g.contiguous(memory_format=_LAST)
    return *(kernels.transform(Source(RAW, g), mask) if mask.end == MASK else (g, None)), of_weight


def _whole(kernels: Kernels, source: Source) -> Tensor:
    """A source as a map in memory."""
    return source.x if source.way == RAW else kernels.transform(source, Sink())[0]
