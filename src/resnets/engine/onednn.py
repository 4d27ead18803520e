"""Convolution, bias, addition and ReLU in one pass, by oneDNN operators that PyTorch does not document.

Each process tests them once before it uses them.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

Pair = tuple[int, ...]


def takes(x: Tensor) -> bool:
    """Whether `conv` can read x: on a CPU, in float32, with something in it, and not to be compiled or exported."""
    suits = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() > 0
    return suits and not torch.compiler.is_compiling() and works()


@functools.cache
def works() -> bool:
    """Whether this build of PyTorch has the operators, and they agree with `conv2d` on a small map."""
    draw = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(s, generator=draw) for s in ((2, 4, 5, 5), (4, 4, 3, 3), (4,)))
    x = x.contiguous(memory_format=torch.channels_last)
    y = functional.conv2d(x, weight, bias, padding=1)
    try:
        packed = pack(weight, (1, 1), (1, 1), x.shape)
        found = [
            conv(x, packed, bias, (1, 1), (1, 1), relu=relu, plus=plus)
            for relu in (False, True)
            for plus in (None, x, x.flip(0))
        ]
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    wanted = [f(y + p) for f in (lambda y: y, torch.relu) for p in (0, x, x.flip(0))]
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def pack(weight: Tensor, stride: Pair, padding: Pair, shape: torch.Size) -> Tensor:
    """The weights in the order in which oneDNN reads them for maps of this shape, so that no call reorders them."""
    return torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, (1, 1), 1, shape)


def conv(
    x: Tensor, packed: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, *, relu: bool, plus: Tensor | None
) -> Tensor:
    """relu(W x + b + plus), written over `plus` unless that is x itself."""
    after = "relu" if relu else None
    if plus is None:
        simple = torch.ops.mkldnn._convolution_pointwise.default
        return simple(x, packed, bias, padding, stride, (1, 1), 1, after or "none", [], None)
    if plus is x:
        added = torch.ops.mkldnn._convolution_pointwise.binary
        return added(x, plus, packed, bias, padding, stride, (1, 1), 1, "add", 1.0, after, [], None)
    onto = torch.ops.mkldnn._convolution_pointwise_.binary
    return onto(plus, x, packed, bias, padding, stride, (1, 1), 1, "add", 1.0, after, [], None)
