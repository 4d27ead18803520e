"""A unit that keeps what its convolutions produced and computes BN-ReLU again in the backward pass.

Plain PyTorch keeps both sides of every BN-ReLU: x for BN, a = ReLU(BN(x)) for the convolution behind it. Here a is
thrown away in the forward pass. Two cheap passes over x bring it back when its gradient is due.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from resnets.engine.inplace_unit import InplaceUnit, bn_of
from resnets.engine.recompute import Recompute
from resnets.nn import Unit
from resnets.nn.conv import Subsampled


class RecomputeUnit(InplaceUnit):
    """x -> f(h(x) + F(x)), keeping x and what the convolutions of F made of it."""

    keeps = False

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.norms = [m for m in unit.modules() if isinstance(m, nn.BatchNorm2d)]
        self.again = Recompute(super().join, [self.acts[-1], unit.shortcut, unit.after])

    def __call__(self, x: Tensor) -> Tensor:
        if not all(norm.training for norm in self.norms):  # frozen by the user
            return self.unit(x)
        return super().__call__(x)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        bn, projection = bn_of(self.unit.shared), getattr(self.unit.resize, "conv", None)
        if bn is None or isinstance(self.convs[0], Subsampled) or isinstance(projection, Subsampled):
            return super().split(x)
        if projection is None:
            r, a = activate(x, bn, [self.convs[0]], itself=True)
            return self.unit.resize(a), r
        r, h = activate(x, bn, [self.convs[0], projection])  # an order with BN here has none behind the projection
        return h, r

    def join(self, h: Tensor, r: Tensor) -> Tensor:
        return (self.again if self.unit.shortcut.keeps_maps else super().join)(h, r)

    def read(self, x: Tensor, act: nn.Module, conv: nn.Module) -> Tensor:
        bn = bn_of(act)
        if bn is None or isinstance(conv, Subsampled):  # it is not a plain `conv2d`
            return conv(self.act(act, x))
        return activate(x, bn, [conv])[0]

    def act(self, layers: nn.Module, x: Tensor) -> Tensor:
        return recompute_act(layers, x)


def recompute_act(layers: nn.Module, x: Tensor) -> Tensor:
    """`layers(x)`; of BN, ReLU only x is kept."""
    bn = bn_of(layers)
    return layers(x) if bn is None or not bn.training else activate(x, bn, itself=True)[0]


def activate(x: Tensor, bn: Any, convs: Sequence[Any] = (), *, itself: bool = False) -> list[Tensor]:
    """a = ReLU(BN(x)) as each of `convs` reads it, and last a `itself` if asked for. x is kept and a is not."""
    if x.numel() == x.shape[1]:
        bn(x)  # raises PyTorch's error: one number has no variance
    bn.num_batches_tracked.add_(1)
    reading = _Reading(bn, [(c.stride, c.padding, c.dilation, c.groups) for c in convs], itself)
    return list(_Activated.apply(reading, x, bn.weight, bn.bias, *(c.weight for c in convs)))  # type: ignore[no-untyped-call]


class _Reading(NamedTuple):
    """How an activation is read."""

    bn: Any
    forms: list[Any]  # of the convolutions: stride, padding, dilation, groups
    itself: bool


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reading: _Reading, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        gamma, beta, *weights = parameters
        bn = reading.bn
        mean, inverse = x.new_empty(0, dtype=gamma.dtype), x.new_empty(0, dtype=gamma.dtype)  # of the deviation
        a = torch.empty_like(x) if reading.itself else passing.like(x)
        running = bn.running_mean, bn.running_var
        torch.native_batch_norm(x, gamma, beta, *running, True, bn.momentum, bn.eps, out=(a, mean, inverse))
        a.relu_()
        ctx.save_for_backward(x, gamma, beta, mean, inverse, *weights)
        ctx.eps, ctx.forms, ctx.itself = bn.eps, reading.forms, reading.itself
        read = [torch.conv2d(a, w, None, *form) for w, form in zip(weights, reading.forms, strict=True)]
        return (*read, a) if reading.itself else tuple(read)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, gamma, beta, mean, inverse, *weights = ctx.saved_tensors
        before, of_weights = any(ctx.needs_input_grad[1:4]), ctx.needs_input_grad[4:]
        a, none = passing.like(x), x.new_empty(0, dtype=gamma.dtype)
        torch.native_batch_norm(x, gamma, beta, mean, inverse.pow(-2), False, 0.0, 0.0, out=(a, none, none.clone()))
        a.relu_()
        da = grads[-1] if ctx.itself else None
        dws: list[Tensor | None] = []
        for dy, w, form, needed in zip(grads, weights, ctx.forms, of_weights, strict=False):
            stride, padding, dilation, groups = form
            cast = a.to(dy.dtype), w.to(dy.dtype)  # as autocast did
            part, dw, _ = torch.ops.aten.convolution_backward(
                dy, *cast, None, stride, padding, dilation, False, (0, 0), groups, (before, needed, False)
            )
            dws.append(dw.to(w.dtype) if needed else None)
            if before:
                da = part if da is None else da + part
        if not before:
            return None, None, None, None, *dws
        assert da is not None
        da = da.to(a.dtype)
        torch.ops.aten.threshold_backward.grad_input(da, a, 0, grad_input=a)  # in the place of a
        dx = torch.empty_like(da) if ctx.itself else da  # in the place of da, if it is ours
        dgamma, dbeta = torch.empty_like(gamma), torch.empty_like(beta)
        torch.ops.aten.native_batch_norm_backward.out(
            a, x, gamma, None, None, mean, inverse, True, ctx.eps, (True,) * 3, out0=dx, out1=dgamma, out2=dbeta
        )
        return None, dx, dgamma, dbeta, *dws


class _Passing(threading.local):
    """One buffer that all units share for maps that are read right away, so that none stays in the heap."""

    def __init__(self) -> None:
        self.room = torch.empty(0)

    def like(self, x: Tensor) -> Tensor:
        """A map like x, valid until the next call."""
        dense = x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
        if x.device.type != "cpu" or not dense:
            return torch.empty_like(x)
        if self.room.numel() < x.numel() or self.room.dtype != x.dtype:
            self.room = x.new_empty(x.numel())
        return self.room.as_strided(x.shape, x.stride())

    def clear(self) -> None:
        self.room = torch.empty(0)


passing = _Passing()
