"""The kernels of `kernels.cpp` as functions of tensors: float32 maps in channels_last order on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from resnets.engine.arena import empty_map
from resnets.engine.threads import count_threads

_Pointer, _Number = ctypes.c_void_p, ctypes.c_int64
VERSION = 5  # of the rounding of a step: another order of sums is another version; 5 has other gradients of filters
RAW, ACT, LINEAR, RELU, AFFINE = range(5)  # ways in
PLAIN, ADD, ADD_RELU, MASK, OFFSET, OFFSET_RELU = range(6)  # ways out
_FUNCTIONS = (
    *(f"conv{kind}{what}" for kind in ("3x3", "1x1", "_any") for what in ("", "_filters_gradient")),
    "conv1x1_backward",
    "pass",
    "product",
    "draw_mask",
    *(
        f"{kind}_{way}"
        for kind in ("norm", "gate", "linear", "pad", "pool", "units")
        for way in ("forward", "backward")
    ),
)


LARGE = 1 << 20  # floats of a map that no cache holds until it is read
_LINE = 16  # floats in a line of a cache
_ONE_PASS = 1 << 16  # filters of a 1x1 convolution up to which its maps, not its filters, decide its time


def fields(numbers: str, pointers: str = "", doubles: str = "") -> list[tuple[str, type]]:
    """The fields of a structure of the library: whole numbers, then pointers, then floats."""
    kinds = (numbers, _Number), (pointers, _Pointer), (doubles, ctypes.c_double)
    return [(name, kind) for names, kind in kinds for name in names.split()]


class _Source(ctypes.Structure):
    _fields_ = fields("way", "x z a b c d")


class _Sink(ctypes.Structure):
    _fields_ = fields("end large", "y add m a d q c sums")


class _Shape(ctypes.Structure):
    _fields_ = fields("n height width into out threads side stride padding")


class _Norm(ctypes.Structure):
    _fields_ = [
        *fields("channels pixels", doubles="eps momentum times"),
        *fields("", "gamma beta running_mean running_var"),
    ]


class _Gate(ctypes.Structure):
    _fields_ = fields("exclusive relu", "z bias x r")


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
    """How a result v goes out: v; v + add; max(v + add, 0); v where a m + d > 0; v + d [+ add]; max(v + d [+ add], 0).
    Sums: of y and y (q - c).
    """

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


class GateMaps(NamedTuple):
    """What a gate reads: the result of its 1x1 convolution, its bias, the shortcut's map and that of F.

    `relu`: a ReLU follows the addition.
    """

    exclusive: bool
    relu: bool
    z: Tensor
    bias: Tensor
    x: Tensor
    r: Tensor


class Window(NamedTuple):
    """Of a pooling: its side, the pixels from one window to the next, and those that it reaches over the rim."""

    side: int
    stride: int
    padding: int


class Kernels:
    """The functions of a compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in _FUNCTIONS:
            getattr(library, name).restype = None

    # --- maps -----------------------------------------------------------------------------------

    def conv(
        self, source: Source, weight: Tensor, sink: Sink, *, stride: int = 1, back_to: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """A convolution padded by half its side; with `back_to`, the size of its input, the gradient of that input."""
        out, into, side, _ = weight.shape
        weight = weight.contiguous(memory_format=torch.channels_last)
        height, width = source.x.shape[2:] if back_to is None else back_to
        if back_to is not None:
            into, out = out, into
        shape = _Shape(len(source.x), height, width, into, out, count_threads(), side, stride, side // 2)
        if back_to is None:
            height, width = (_outputs(size, side, stride, side // 2) for size in (height, width))
        y = empty_map((len(source.x), out, height, width))
        sums = _sums(out) if sink.sums else None
        left, right, backward = source.raw(), _sink(sink, y, sums), _Number(back_to is not None)
        convolve = getattr(self._library, _function(weight, stride))
        convolve(ctypes.byref(shape), ctypes.byref(left), _pointer(weight), backward, ctypes.byref(right))
        return y, sums

    def conv_filters(self, source: Source, gradient: Source, weight: Tensor, *, stride: int = 1) -> Tensor:
        """The gradient of a convolution's filters."""
        result = torch.empty_like(weight, memory_format=torch.channels_last)
        out, into, side, _ = weight.shape
        n, _, height, width = source.x.shape
        shape = _Shape(n, height, width, into, out, count_threads(), side, stride, side // 2)
        left, right = source.raw(), gradient.raw()
        function = getattr(self._library, f"{_function(weight, stride)}_filters_gradient")
        function(ctypes.byref(shape), ctypes.byref(left), ctypes.byref(right), _pointer(result))
        return result

    def conv_backward(
        self,
        source: Source,
        gradient: Source,
        weight: Tensor,
        sink: Sink | None,
        *,
        stride: int = 1,
        learns: bool = True,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradient of the filters if they learn, and that of the input with its sums if there is a sink for it."""
        out, into, _, _ = weight.shape
        n, _, height, width = source.x.shape
        if learns and sink and takes_one_pass(weight, stride):
            y, of_weight = empty_map(source.x.shape), torch.empty_like(weight, memory_format=torch.channels_last)
            sums = _sums(into) if sink.sums else None
            shape, left, right = (
                _Shape(n, height, width, into, out, count_threads(), 1, 1, 0),
                source.raw(),
                gradient.raw(),
            )
            maps, end = (ctypes.byref(part) for part in (shape, left, right)), ctypes.byref(_sink(sink, y, sums))
            filters = weight.contiguous(memory_format=torch.channels_last)
            self._library.conv1x1_backward(*maps, _pointer(filters), end, _pointer(of_weight))
            return of_weight, y, sums
        found = self.conv_filters(source, gradient, weight, stride=stride) if learns else None
        if sink is None:
            return found, None, None
        return found, *self.conv(gradient, weight, sink, stride=stride, back_to=(height, width))

    def transform(
        self, source: Source, sink: Sink, *, keep: bool = True, over: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """A map from source to sink; without `keep` only its sums are made, with `over` it takes the place of x."""
        x = source.x
        y = x if over else empty_map(x.shape) if keep else x.new_empty(0)
        sums = _sums(x.shape[1]) if sink.sums else None
        shape, left, right = _shape(x), source.raw(), _sink(sink, y if keep else None, sums)
        getattr(self._library, "pass")(ctypes.byref(shape), ctypes.byref(left), ctypes.byref(right))
        return y, sums

    def pad(self, x: Tensor, out: int, stride: int, front: int) -> Tensor:
        """Option A: every `stride`-th pixel, and `out` channels, of which those of x begin at `front`."""
        n, into, height, width = x.shape
        h = empty_map((n, out, _outputs(height, 1, stride, 0), _outputs(width, 1, stride, 0)))
        shape = _Shape(n, height, width, into, out, count_threads(), 1, stride, front)
        self._library.pad_forward(ctypes.byref(shape), _pointer(x), _pointer(h))
        return h

    def add_pad_gradient(self, grad: Tensor, stride: int, front: int, to: Tensor) -> None:
        """Add the gradient that comes through `pad` to that of x."""
        n, into, height, width = to.shape
        shape = _Shape(n, height, width, into, grad.shape[1], count_threads(), 1, stride, front)
        self._library.pad_backward(ctypes.byref(shape), _pointer(grad), _pointer(to))

    def max_pool(self, x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Max pooling, and which pixel of its window each result is."""
        n, channels, height, width = x.shape
        y = empty_map((n, channels, *(_outputs(size, *window) for size in (height, width))))
        places = torch.empty(y.numel(), dtype=torch.uint8)
        shape = _Shape(n, height, width, channels, channels, count_threads(), *window)
        self._library.pool_forward(ctypes.byref(shape), *map(_pointer, (x, y, places)))
        return y, places

    def max_pool_backward(self, grad: Tensor, places: Tensor, shape: torch.Size, window: Window) -> Tensor:
        """The gradient of what was pooled, which has this shape."""
        n, channels, height, width = shape
        of_x = empty_map(shape)
        described = _Shape(n, height, width, channels, channels, count_threads(), *window)
        self._library.pool_backward(ctypes.byref(described), *map(_pointer, (grad, places, of_x)))
        return of_x

    def units_forward(self, units: ctypes.Structure, sums: Tensor | None, sums_of_y: Tensor | None) -> None:
        """Units in a row; see `units.py`."""
        self._library.units_forward(ctypes.byref(units), *map(_Pointer, map(_at, (sums, sums_of_y))))

    def units_backward(self, units: ctypes.Structure, *tensors: Tensor, middle: int) -> None:
        """From the gradient of y those of the parameters and of x; the last tensor is room for maps."""
        self._library.units_backward(ctypes.byref(units), *map(_pointer, tensors), _Number(middle))

    # --- BN -------------------------------------------------------------------------------------

    def norm_forward(self, bn: nn.BatchNorm2d, sums: Tensor, pixels: int, times: float = 1.0) -> Normalized:
        """BN of a batch, multiplied by `times`, from its sums; the running statistics move along."""
        assert bn.num_batches_tracked is not None
        if pixels == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training: the map is one image of 1x1 pixels."
            )
        bn.num_batches_tracked.add_(1)
        channels = bn.num_features
        made = Normalized(torch.empty(2, channels, dtype=torch.float64), *torch.empty(3, channels).unbind())
        norm = _norm(bn, pixels, times, running=True)
        self._library.norm_forward(ctypes.byref(norm), *map(_pointer, (sums, made.exact, made.c)))
        return made

    def norm_backward(
        self, bn: nn.BatchNorm2d, known: Normalized, sums: Tensor, pixels: int, times: float = 1.0
    ) -> Iterable[Tensor]:
        """The gradients of gamma and beta, and a, b, d of BN's backward, from the sums of g and g (x - c)."""
        results = torch.empty(5, bn.num_features)
        norm = _norm(bn, pixels, times, running=False)
        self._library.norm_backward(ctypes.byref(norm), *map(_pointer, (sums, known.exact, results)))
        return results.unbind()

    # --- gates, dropout and the classifier --------------------------------------------------------

    def gate(self, maps: GateMaps) -> Tensor:
        """(1 - g) x + g r, or if it is not `exclusive` (1 - g) x + r, with g = sigmoid(z + bias); and its ReLU."""
        y = empty_map(maps.x.shape)
        self._library.gate_forward(*_gate(maps), _pointer(y))
        return y

    def gate_backward(self, maps: GateMaps, y: Tensor | None, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of z, of x without what comes through z, of r and of the bias. A ReLU needs its result y."""
        shape = maps.x.shape
        of_z, of_x, of_bias = empty_map(shape), empty_map(shape), torch.empty_like(maps.bias)
        of_r = empty_map(shape) if maps.exclusive or maps.relu else grad
        pointers = map(_pointer, (grad if y is None else y, grad, of_z, of_x, of_r, of_bias))
        self._library.gate_backward(*_gate(maps), *pointers)
        return of_z, of_x, of_r, of_bias

    def draw_mask(self, state: Tensor, mask: Tensor, keep: float) -> None:
        """Fill `mask`, in the order of memory, with 1 with the probability `keep` and else 0, and advance `state`."""
        count = _Number(mask.numel())
        self._library.draw_mask(_pointer(state), count, ctypes.c_double(keep), _pointer(mask))

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x weight' + bias of vectors x."""
        y = x.new_empty(len(x), len(weight))
        shape = _Shape(len(x), 1, 1, x.shape[1], len(weight), count_threads(), 1, 1, 0)
        self._library.linear_forward(ctypes.byref(shape), *map(_pointer, (x, weight, bias, y)))
        return y

    def linear_backward(self, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of x, weight and bias."""
        found = torch.empty_like(x), torch.empty_like(weight), x.new_empty(len(weight))
        shape = _Shape(len(x), 1, 1, x.shape[1], len(weight), count_threads(), 1, 1, 0)
        self._library.linear_backward(ctypes.byref(shape), *map(_pointer, (x, weight, grad, *found)))
        return found

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices, by one thread. PyTorch does those of odd sizes and orders of memory."""
        (rows, k), columns = a.shape, b.shape[1]
        turned = b.mT.is_contiguous()
        whole = a.is_contiguous() and (turned or b.is_contiguous()) and not (k % 8 or columns % 8)
        if not whole or a.dtype != torch.float32 or b.dtype != torch.float32:
            return a @ b
        c = a.new_empty(rows, columns)
        shape = _Shape(rows, 1, 1, k, columns, 1, 1, 1, 0)
        self._library.product(ctypes.byref(shape), _pointer(a), _pointer(b), _Number(turned), _pointer(c))
        return c


def takes_one_pass(weight: Tensor, stride: int) -> bool:
    """Whether both gradients of a convolution are found in one pass over its maps."""
    return _function(weight, stride) == "conv1x1" and weight.numel() <= _ONE_PASS


def _gate(maps: GateMaps) -> tuple[Any, Any]:
    exclusive, relu, z, bias, x, r = maps
    for tensor in (z, x, r):
        assert tensor.is_contiguous(memory_format=torch.channels_last), "maps are in channels_last order"
    return ctypes.byref(_shape(x)), ctypes.byref(_Gate(exclusive, relu, _at(z), _at(bias), _at(x), _at(r)))


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return _Pointer(tensor.data_ptr())


def _sums(channels: int) -> Tensor:
    return torch.empty(2, channels, dtype=torch.float64)


def _shape(x: Tensor) -> _Shape:
    n, channels, height, width = x.shape
    return _Shape(n, height, width, channels, channels, count_threads(), 1, 1, 0)


def _outputs(size: int, side: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - side) // stride + 1


def _function(weight: Tensor, stride: int) -> str:
    """The name of the functions for a kind of convolution."""
    side = weight.shape[2]
    return f"conv{side}x{side}" if stride == 1 and side in (1, 3) and weight.shape[1] % 8 == 0 else "conv_any"


def _sink(sink: Sink, y: Tensor | None, sums: Tensor | None) -> _Sink:
    large = y is not None and y.numel() >= LARGE and y.shape[1] % _LINE == 0 and y.data_ptr() % (4 * _LINE) == 0
    return _Sink(
        sink.end,
        large,
        _at(y),
        _at(sink.add),
        _at(sink.m),
        _at(sink.a),
        _at(sink.d),
        _at(sink.q),
        _at(sink.c),
        _at(sums),
    )


def _norm(bn: nn.BatchNorm2d, pixels: int, times: float, *, running: bool) -> _Norm:
    moving = (_at(bn.running_mean), _at(bn.running_var)) if running else (None, None)
    assert bn.momentum is not None
    return _Norm(bn.num_features, pixels, bn.eps, bn.momentum, times, _at(bn.weight), _at(bn.bias), *moving)
