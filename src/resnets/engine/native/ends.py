"""The stem of a network, and what stands behind its units, run by the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from resnets.engine.native.branch import Branch, Step
from resnets.engine.native.kernels import Kernels, Window
from resnets.engine.native.unit import is_last, is_plain, native_act, suits
from resnets.engine.threads import hold
from resnets.nn.structure import HOOKS


class NativeStem:
    """The first convolution with its BN and ReLU, then pooling. Images that ask for a gradient are left to PyTorch."""

    def __init__(self, stem: nn.Module, kernels: Kernels) -> None:
        self.stem = stem
        self.conv: nn.Conv2d = stem.conv  # type: ignore[assignment]
        act = getattr(stem, "act", None)
        self.norms: list[nn.BatchNorm2d] = [] if act is None else [act.bn]
        tail = self.norms[0] if self.norms else None
        self.branch = Branch(kernels, [Step(self.conv, None, False)], tail=tail, relu="first" if self.norms else "")
        pool: nn.MaxPool2d | None = getattr(stem, "pool", None)
        self.window = None if pool is None else Window(pool.kernel_size, pool.stride, pool.padding)  # type: ignore[arg-type]

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.conv.weight  # which a recipe may whiten and not train
        if x.requires_grad or len(weight) % 8 or not is_plain(weight) or not suits(x, [], self.norms):
            hold()
            return self.stem(x)
        y, _ = self.branch(x)
        if self.window is not None:
            y = _MaxPool.apply(self.branch.kernels, self.window, y)  # type: ignore[no-untyped-call]
        if not (is_last(x) or is_last(self.conv.weight)):
            y = y.contiguous()  # as PyTorch's convolution leaves it: masks of dropout are drawn in the order of memory
        return y


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, window: Window, x: Tensor) -> Tensor:
        y, places = kernels.max_pool(x.contiguous(memory_format=torch.channels_last), window)
        ctx.kernels, ctx.window, ctx.shape = kernels, window, x.shape
        ctx.save_for_backward(places)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (places,) = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        return None, None, ctx.kernels.max_pool_backward(grad, places, ctx.shape, ctx.window)


class NativeAct:
    """The last BN and ReLU, which keep nothing but x for the backward pass."""

    def __init__(self, layers: nn.Module, act: Branch) -> None:
        assert act.tail is not None
        self.layers, self.act, self.norms = layers, act, [act.tail]

    def __call__(self, x: Tensor) -> Tensor:
        if suits(x, [], self.norms):
            return self.act(x)[0]
        hold()
        return self.layers(x)


def choose_act(layers: nn.Module, kernels: Kernels) -> Callable[[Tensor], Tensor]:
    """What runs the last activation of a network."""
    act = native_act(layers, kernels)
    return layers if act is None or act.tail is None or act.tail.num_features % 8 else NativeAct(layers, act)


class NativeClassifier:
    """`nn.Linear` by the kernels."""

    def __init__(self, linear: nn.Linear, kernels: Kernels) -> None:
        self.linear, self.kernels = linear, kernels

    def __call__(self, x: Tensor) -> Tensor:
        linear = self.linear
        tensors = x, linear.weight, linear.bias
        if torch.is_autocast_enabled("cpu") or not all(is_plain(t) and t.is_contiguous() for t in tensors):
            hold()
            return linear(x)
        return _Linear.apply(self.kernels, x, linear.weight, linear.bias)  # type: ignore[no-untyped-call]


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a classifier is `nn.Linear` as PyTorch has it, of a size that the kernels take."""
    return (
        type(module) is nn.Linear
        and module.in_features % 8 == 0
        and type(module.weight) is nn.Parameter
        and type(module.bias) is nn.Parameter
        and "forward" not in vars(module)
        and nn.Linear.forward is _FORWARD
        and not any(getattr(module, hooks) for hooks in HOOKS)
    )


_FORWARD = nn.Linear.forward


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.kernels = kernels
        ctx.save_for_backward(x, weight)
        return kernels.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.kernels.linear_backward(x, weight, grad.contiguous())
        needed = ctx.needs_input_grad
        return None, of_x if needed[1] else None, of_weight if needed[2] else None, of_bias if needed[3] else None
