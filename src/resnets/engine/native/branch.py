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
    GateMaps,
    Kernels,
    Normalized,
    Sink,
    Source,
)
from resnets.nn.shortcuts import ExclusiveGate, Pad, ShortcutGate

_LAST = torch.channels_last


class Step(NamedTuple):
    """One convolution and the activation in front of it."""

    conv: nn.Conv2d
    bn: nn.BatchNorm2d | None
    relu: bool


@dataclass(frozen=True)
class Branch:
    """Convolutions behind their activations, and how they end: r, h + r, or with a BN behind the last of them
    BN(r), ReLU(BN(r)), h + BN(r), h + ReLU(BN(r)), ReLU(h + BN(r)) (the original unit). Without steps r is x.
    With a gate any of these without h is its r, and the gate adds h.
    """

    kernels: Kernels
    steps: list[Step]
    adds: bool = False  # h is added here
    tail: nn.BatchNorm2d | None = None
    relu: str = ""  # "first" on BN(r), "last" on the sum
    pad: Pad | None = None  # what makes h of x, option A
    times: float = 1.0  # what multiplies r; ReLU is not "first" then
    gate: ShortcutGate | None = None
    gate_relu: bool = False  # on the sum that the gate makes

    @property
    def norms(self) -> list[nn.BatchNorm2d | None]:
        """In the order in which a map meets them."""
        return [step.bn for step in self.steps] + ([] if self.tail is None else [self.tail])

    def scale(self, step: int) -> float:
        """What multiplies the filters of a step: the factor of r, if the step is what r ends with."""
        return self.times if self.tail is None and step + 1 == len(self.steps) else 1.0

    def __call__(self, x: Tensor, sums: Tensor | None = None, h: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The end of the branch, and its sums for a BN behind it. `sums` are those of x, where they are known."""
        parameters = [step.conv.weight for step in self.steps]
        parameters += [p for bn in self.norms if bn is not None for p in (bn.weight, bn.bias)]
        parameters += [] if self.gate is None else list(self.gate.gate.parameters())
        return _Run.apply(self, sums, x, h if self.adds and self.pad is None else None, *parameters)  # type: ignore[no-untyped-call]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, branch: Branch, sums: Tensor | None, x: Tensor, h: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        kernels, steps = branch.kernels, branch.steps
        same = h is x
        y = x.contiguous(memory_format=_LAST)
        h = y if same else None if h is None else h.contiguous(memory_format=_LAST)
        if branch.pad is not None:
            h = kernels.pad(y, y.shape[1] + sum(branch.pad.zeros), branch.pad.stride, branch.pad.zeros[4])
        add = h if branch.gate is None else None  # on the way out of the last layer
        maps: list[Tensor] = []
        norms: list[Normalized | None] = []
        for i, step in enumerate(steps):
            maps.append(y)
            norms.append(None if step.bn is None else _normalize(kernels, step.bn, y, sums))
            behind = steps[i + 1].bn if i + 1 < len(steps) else branch.tail
            last = i + 1 == len(steps) and branch.tail is None
            sink = Sink(ADD, add=add, sums=True) if last and add is not None else Sink(sums=behind is not None)
            times = branch.scale(i)
            weight = step.conv.weight if times == 1 else step.conv.weight * times
            y, sums = kernels.conv(_activate(step, y, norms[-1]), weight, sink, stride=step.conv.stride[0])
        if branch.tail is not None:
            maps.append(y)
            norm = _normalize(kernels, branch.tail, y, sums, branch.times)
            norms.append(norm)
            way = ACT if branch.relu == "first" else AFFINE
            end = PLAIN if add is None else ADD_RELU if branch.relu == "last" else ADD
            y, sums = kernels.transform(Source(way, y, a=norm.a, d=norm.d), Sink(end, add=add))
        gated: list[Tensor] = []
        if branch.gate is not None:
            assert h is not None
            gate = branch.gate.gate
            assert gate.bias is not None
            z, _ = kernels.conv(Source(RAW, h), gate.weight, Sink())
            gated = [gate.weight, z, gate.bias, h, y]
            y, sums = kernels.gate(_list_gate_maps(branch, gated)), None
        ctx.branch, ctx.same, ctx.maps = branch, same, len(maps)
        ended = [y] if branch.relu == "last" or branch.gate_relu else []
        statistics = [tensor for norm in norms if norm is not None for tensor in norm]
        ctx.save_for_backward(*maps, *statistics, *(step.conv.weight for step in steps), *gated, *ended)
        if sums is not None:
            ctx.mark_non_differentiable(sums)
        return y, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        branch: Branch = ctx.branch
        kernels, steps = branch.kernels, branch.steps
        saved = list(ctx.saved_tensors)  # asked for once, as checkpointing wants it
        maps, rest = saved[: ctx.maps], iter(saved[ctx.maps :])
        norms = [Normalized(*islice(rest, 4)) if bn is not None else None for bn in branch.norms]
        weights = list(islice(rest, len(steps)))
        whole = grad.contiguous(memory_format=_LAST)  # what goes to h
        apart = branch.adds and not ctx.same and branch.pad is None  # h is an input of its own
        gradient = Source(RAW, whole)
        of_gate: list[Tensor] = []
        if branch.gate is not None:
            whole, of_r, *of_gate = _gate_back(branch, list(islice(rest, 5)), next(rest, None), whole)
            gradient = Source(RAW, of_r)
        of_norms: list[Tensor] = []
        if branch.tail is not None:
            y = next(rest) if branch.relu == "last" else None
            gradient, of_norms, of_sum = _tail_back(branch, gradient, maps.pop(), norms.pop(), y)
            whole = of_sum if y is not None else whole
        adds = ctx.same and branch.adds
        of_weights: list[Tensor | None] = []
        while maps:
            at = len(maps) - 1
            step, x, norm, weight = steps[at], maps.pop(), norms.pop(), weights.pop()
            activated, sink, stride = _activate(step, x, norm), Sink(), step.conv.stride[0]
            if activated.way != RAW:
                bn = step.bn is not None
                sink = Sink(MASK, m=x, a=activated.a, d=activated.d, q=x if bn else None, c=activated.c, sums=bn)
            elif adds and not maps:
                sink, adds = Sink(ADD, add=whole), False
            learns = ctx.needs_input_grad[4 + at]  # as all do but the filters of a stem that is not trained
            images = not maps and step.bn is None and not ctx.needs_input_grad[2]
            times = branch.scale(at)
            scaled = weight if times == 1 else weight * times
            of_weight, of_input, sums = kernels.conv_backward(
                activated, gradient, scaled, None if images else sink, stride=stride, learns=learns
            )
            of_weights.insert(0, of_weight * times if of_weight is not None and times != 1 else of_weight)
            if of_input is None:
                return None, None, None, whole if apart else None, *of_weights, *of_norms, *of_gate
            gradient = Source(RAW, of_input)
            if step.bn is not None and norm is not None:
                gradient, found = _norm_back(kernels, step.bn, norm, (of_input, sums, x))
                of_norms = found + of_norms
        of_x = gradient.x
        if gradient.way == LINEAR or adds:
            ours = gradient.x is not whole and gradient.x is not grad  # and may be written over
            of_x, _ = kernels.transform(gradient, Sink(ADD, add=whole) if adds else Sink(), over=ours)
        if branch.pad is not None:
            kernels.add_pad_gradient(whole, branch.pad.stride, branch.pad.zeros[4], of_x)
        return None, None, of_x, whole if apart else None, *of_weights, *of_norms, *of_gate


def _tail_back(
    branch: Branch, gradient: Source, c: Tensor, norm: Normalized | None, y: Tensor | None
) -> tuple[Source, list[Tensor], Tensor]:
    """Back through the BN behind the last layer, which read c, and its ReLU. y is what ReLU left of the sum.

    The gradient in front of BN, those of gamma and beta, and the gradient behind BN.
    """
    assert branch.tail is not None
    assert norm is not None
    sink = Sink(PLAIN, q=c, c=norm.c, sums=True)
    if branch.relu == "first":
        sink = Sink(MASK, m=c, a=norm.a, d=norm.d, q=c, c=norm.c, sums=True)
    elif branch.relu == "last":
        sink = Sink(MASK, m=y, q=c, c=norm.c, sums=True)
    g, sums = branch.kernels.transform(gradient, sink, keep=sink.end == MASK)
    if sink.end == PLAIN:
        g = gradient.x
    return *_norm_back(branch.kernels, branch.tail, norm, (g, sums, c), branch.times), g


def _list_gate_maps(branch: Branch, gated: list[Tensor]) -> GateMaps:
    return GateMaps(isinstance(branch.gate, ExclusiveGate), branch.gate_relu, *gated[1:])


def _gate_back(branch: Branch, gated: list[Tensor], y: Tensor | None, grad: Tensor) -> list[Tensor]:
    """The gradients of h and r, and of the gate's filters and bias."""
    kernels, weight, h = branch.kernels, gated[0], gated[3]
    of_z, of_h, of_r, of_bias = kernels.gate_backward(_list_gate_maps(branch, gated), y, grad)
    of_weight = kernels.conv_filters(Source(RAW, h), Source(RAW, of_z), weight)
    height, width = h.shape[2:]
    of_h, _ = kernels.conv(Source(RAW, of_z), weight, Sink(ADD, add=of_h), back_to=(height, width))
    return [of_h, of_r, of_weight, of_bias]


def _normalize(kernels: Kernels, bn: nn.BatchNorm2d, x: Tensor, sums: Tensor | None, times: float = 1.0) -> Normalized:
    if sums is None:
        _, sums = kernels.transform(Source(RAW, x), Sink(sums=True), keep=False)
    assert sums is not None
    return kernels.norm_forward(bn, sums, x.numel() // x.shape[1], times)


def _norm_back(
    kernels: Kernels,
    bn: nn.BatchNorm2d,
    norm: Normalized,
    seen: tuple[Tensor, Tensor | None, Tensor],
    times: float = 1.0,
) -> tuple[Source, list[Tensor]]:
    """The gradient in front of BN, to be computed where it is read, and those of gamma and beta.

    `seen` are the gradient behind BN, its sums, and what BN read.
    """
    g, sums, x = seen
    assert sums is not None
    gamma, beta, a, b, d = kernels.norm_backward(bn, norm, sums, x.numel() // x.shape[1], times)
    return Source(LINEAR, g, x, a, b, norm.c, d), [gamma, beta]


def _activate(step: Step, x: Tensor, norm: Normalized | None) -> Source:
    """x as the convolution of a step reads it."""
    if norm is None:
        return Source(RELU if step.relu else RAW, x)
    return Source(ACT, x, a=norm.a, c=norm.c, d=norm.d)
