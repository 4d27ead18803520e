"""The kernels of `kernels.cpp` as functions of tensors: float32 maps in channels_last order on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from resnets.engine.arena import empty_map

_Pointer, _Number = ctypes.c_void_p, ctypes.c_int64
RAW, ACT, LINEAR, RELU, AFFINE = range(5)  # ways in
PLAIN, ADD, ADD_RELU, MASK = range(4)  # ways out
_FUNCTIONS = (
    *("conv3x3", "conv1x1", "pass", "conv3x3_filters_gradient", "conv1x1_filters_gradient"),
    *("norm_forward", "norm_backward"),
)


def _fields(kinds: str, pointers: str) -> list[tuple[str, type]]:
    return [(name, _Number) for name in kinds.split()] + [(name, _Pointer) for name in pointers.split()]


class _Source(ctypes.Structure):
    _fields_ = _fields("way", "x z a b c d")


class _Sink(ctypes.Structure):
    _fields_ = _fields("end", "y add m a d q c sums")


class _Shape(ctypes.Structure):
    _fields_ = _fields("n height width into out threads", "")


class _Norm(ctypes.Structure):
    _fields_ = [
        ("channels", _Number), ("pixels", _Number), ("eps", ctypes.c_double), ("momentum", ctypes.c_double),
        *_fields("", "gamma beta running_mean running_var"),
    ]  # fmt: skip


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@dataclass(slots=True)  # and not frozen, which would cost more than some kernels
class Source:
    """How a map comes in: x; max(a x + d, 0); a x + b (z - c) + d; max(x, 0); a x + d. a to d: of each channel."""

    way: int
    x: Tensor
    z: Tensor | None = None
    a: Tensor | None = None
    b: Tensor | None = None
    c: Tensor | None = None
    d: Tensor | None = None

    def __post_init__(self) -> None:
        assert self.x.is_contiguous(memory_format=torch.channels_last), "maps are in channels_last order"
        assert self.z is None or self.z.is_contiguous(memory_format=torch.channels_last)

    def raw(self) -> _Source:
        return _Source(self.way, _at(self.x), _at(self.z), _at(self.a), _at(self.b), _at(self.c), _at(self.d))


@dataclass(slots=True)
class Sink:
    """How a result v goes out: v; v + add; max(v + add, 0); v where a m + d > 0. Sums: of y and y (q - c)."""

    end: int = PLAIN
    add: Tensor | None = None
    m: Tensor | None = None
    a: Tensor | None = None
    d: Tensor | None = None
    q: Tensor | None = None
    c: Tensor | None = None
    sums: bool = False


class Normalized(NamedTuple):
    """BN's statistics of a batch, and BN as a x + d, of each channel; c, a and d lie in one piece of memory."""

    exact: Tensor  # the mean and the inverse of the deviation, in float64
    c: Tensor  # the mean, rounded
    a: Tensor
    d: Tensor


class Kernels:
    """The functions of a compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in _FUNCTIONS:
            getattr(library, name).restype = None

    # --- maps -----------------------------------------------------------------------------------

    def conv(
        self, source: Source, weight: Tensor, sink: Sink, *, backward: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """A 3x3 or 1x1 convolution of stride 1, or `backward` the gradient of its input from that of its output."""
        out, into, side, _ = weight.shape
        weight = weight.contiguous(memory_format=torch.channels_last)
        if backward:
            into, out = out, into
        n, _, height, width = source.x.shape
        y = empty_map((n, out, height, width))
        sums = _sums(out) if sink.sums else None
        shape, left, right = _shape(source.x, into, out), source.raw(), _sink(sink, y, sums)
        convolve = self._library.conv3x3 if side == 3 else self._library.conv1x1
        convolve(ctypes.byref(shape), ctypes.byref(left), _pointer(weight), _Number(backward), ctypes.byref(right))
        return y, sums

    def conv_filters(self, source: Source, gradient: Source, weight: Tensor) -> Tensor:
        """The gradient of a convolution's filters."""
        out, into, side, _ = weight.shape
        result = torch.empty_like(weight, memory_format=torch.channels_last)
        function = getattr(self._library, f"conv{side}x{side}_filters_gradient")
        shape, left, right = _shape(source.x, into, out), source.raw(), gradient.raw()
        function(ctypes.byref(shape), ctypes.byref(left), ctypes.byref(right), _pointer(result))
        return result

    def transform(
        self, source: Source, sink: Sink, *, keep: bool = True, over: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """A map from source to sink; without `keep` only its sums are made, with `over` it takes the place of x."""
        x = source.x
        y = x if over else empty_map(x.shape) if keep else x.new_empty(0)
        sums = _sums(x.shape[1]) if sink.sums else None
        shape, left, right = _shape(x, x.shape[1], x.shape[1]), source.raw(), _sink(sink, y if keep else None, sums)
        getattr(self._library, "pass")(ctypes.byref(shape), ctypes.byref(left), ctypes.byref(right))
        return y, sums

    # --- BN -------------------------------------------------------------------------------------

    def norm_forward(self, bn: nn.BatchNorm2d, sums: Tensor, pixels: int) -> Normalized:
        """BN of a batch from its sums; the running statistics move along."""
        assert bn.num_batches_tracked is not None
        bn.num_batches_tracked.add_(1)
        channels = bn.num_features
        made = Normalized(torch.empty(2, channels, dtype=torch.float64), *torch.empty(3, channels).unbind())
        norm = _norm(bn, pixels, running=True)
        self._library.norm_forward(ctypes.byref(norm), *map(_pointer, (sums, made.exact, made.c)))
        return made

    def norm_backward(self, bn: nn.BatchNorm2d, known: Normalized, sums: Tensor, pixels: int) -> Iterable[Tensor]:
        """The gradients of gamma and beta, and a, b, d of BN's backward, from the sums of g and g (x - c)."""
        results = torch.empty(5, bn.num_features)
        norm = _norm(bn, pixels, running=False)
        self._library.norm_backward(ctypes.byref(norm), *map(_pointer, (sums, known.exact, results)))
        return results.unbind()


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return _Pointer(tensor.data_ptr())


def _sums(channels: int) -> Tensor:
    return torch.empty(2, channels, dtype=torch.float64)


def _shape(x: Tensor, into: int, out: int) -> _Shape:
    n, _, height, width = x.shape
    return _Shape(n, height, width, into, out, torch.get_num_threads())


def _sink(sink: Sink, y: Tensor | None, sums: Tensor | None) -> _Sink:
    return _Sink(
        sink.end, _at(y), _at(sink.add), _at(sink.m), _at(sink.a), _at(sink.d), _at(sink.q), _at(sink.c), _at(sums)
    )


def _norm(bn: nn.BatchNorm2d, pixels: int, *, running: bool) -> _Norm:
    moving = (_at(bn.running_mean), _at(bn.running_var)) if running else (None, None)
    assert bn.momentum is not None
    return _Norm(bn.num_features, pixels, bn.eps, bn.momentum, _at(bn.weight), _at(bn.bias), *moving)
