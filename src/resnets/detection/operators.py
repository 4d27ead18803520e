"""RoI pooling, RoI align and non-maximum suppression: a little C++, compiled on first use, with gradients.

The results have the same bytes on any number of threads. Other devices and dtypes, and machines without a compiler,
use `reference`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnets.detection import reference
from resnets.detection.reference import Bins
from resnets.engine.threads import count_threads
from resnets.errors import UserError
from resnets.native_build import Library, Ways, load_or_say, open_checked

_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-pthread", "-ffp-contract=off")
_WAYS = Ways(((*_FLAGS, "-march=native"), _FLAGS), (("-pthread",),))
_Pointer, _Number, _Real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class Functions:
    """The compiled functions. Maps are channels-last, regions and boxes contiguous float32."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pool, self._pool_backward = library.pool_regions, library.pool_regions_backward
        self._align, self._align_backward = library.align_regions, library.align_regions_backward
        self._suppress = library.suppress
        map_size = (_Number,) * 3
        self._pool.argtypes = (_Pointer, *map_size, _Pointer, _Number, _Number, _Real, _Pointer, _Pointer, _Number)
        self._pool_backward.argtypes = (_Pointer, _Pointer, _Pointer, _Number, _Number, *map_size, _Pointer, _Number)
        self._align.argtypes = (
            *(_Pointer, *map_size, _Pointer, _Number, _Number, _Real),
            *(_Number, _Number, _Pointer, _Number),
        )
        self._align_backward.argtypes = (
            *(_Pointer, _Pointer, _Number, _Number, _Real, _Number, _Number),
            *(*map_size, _Pointer, _Number),
        )
        self._suppress.argtypes = (_Pointer, _Number, _Real, _Number, _Pointer)
        self._suppress.restype = _Number

    def pool(self, x: Tensor, regions: Tensor, bins: Bins) -> tuple[Tensor, Tensor]:
        """The pooled regions, and the pixel that each value comes from."""
        shape = len(regions), x.shape[1], bins.size, bins.size
        out = torch.empty(shape, memory_format=torch.channels_last)
        source = torch.empty(shape, dtype=torch.int32, memory_format=torch.channels_last)
        given = regions.data_ptr(), len(regions), bins.size, bins.scale
        self._pool(x.data_ptr(), *x.shape[1:], *given, out.data_ptr(), source.data_ptr(), count_threads())
        return out, source

    def pool_backward(self, gradient: Tensor, source: Tensor, regions: Tensor, shape: torch.Size) -> Tensor:
        into = _make_map(shape)
        given = gradient.data_ptr(), source.data_ptr(), regions.data_ptr(), len(regions), gradient.shape[2]
        self._pool_backward(*given, *shape[1:], into.data_ptr(), count_threads())
        return into

    def align(self, x: Tensor, regions: Tensor, bins: Bins) -> Tensor:
        out = torch.empty((len(regions), x.shape[1], bins.size, bins.size), memory_format=torch.channels_last)
        given = regions.data_ptr(), len(regions), *bins
        self._align(x.data_ptr(), *x.shape[1:], *given, out.data_ptr(), count_threads())
        return out

    def align_backward(self, gradient: Tensor, regions: Tensor, shape: torch.Size, bins: Bins) -> Tensor:
        into = _make_map(shape)
        given = regions.data_ptr(), len(regions), *bins
        self._align_backward(gradient.data_ptr(), *given, *shape[1:], into.data_ptr(), count_threads())
        return into

    def suppress(self, boxes: Tensor, threshold: float, limit: int) -> Tensor:
        kept = torch.empty(min(limit, len(boxes)), dtype=torch.long)
        return kept[: self._suppress(boxes.data_ptr(), len(boxes), threshold, limit, kept.data_ptr())]


def _make_map(shape: torch.Size) -> Tensor:
    return torch.empty(shape, memory_format=torch.channels_last).zero_()


@cache
def load() -> Functions | None:
    """The compiled functions, or None where they cannot be compiled; a line then says so."""
    source = Path(__file__).with_name("operators.cpp")
    library = Library(source, "operators for regions", _WAYS, _open, salt=torch.__version__)
    return load_or_say(library, "PyTorch computes regions, which takes several times as long")[0]


def _open(path: Path) -> Functions:
    return open_checked(path, "library of operators for regions", Functions, _computes_correctly)


def _computes_correctly(functions: Functions) -> bool:
    """Small maps and boxes against the reference."""
    bins = Bins(3, 0.125)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 9, 7, generator=draw).contiguous(memory_format=torch.channels_last)
    corner, sides = torch.rand(2, 6, 2, generator=draw) * 60
    boxes = torch.cat([corner, corner + sides + 1], 1)
    regions = torch.cat([torch.tensor([[0.0], [1], [1], [0], [1], [0]]), boxes], 1)
    return (
        torch.equal(functions.pool(x, regions, bins)[0], reference.pool_regions(x, regions, bins))
        and torch.allclose(functions.align(x, regions, bins), reference.align_regions(x, regions, bins), atol=1e-4)
        and torch.equal(functions.suppress(boxes, 0.3, 9), reference.suppress(boxes, 0.3, 9))
    )


# --- the operators ----------------------------------------------------------------------------


def _find_functions(*tensors: Tensor) -> Functions | None:
    suits = all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
    return load() if suits and not torch.compiler.is_compiling() else None


def _check_regions(x: Tensor, regions: Tensor) -> None:
    if regions.dim() != 2 or regions.shape[1] != 5:
        raise UserError(f"regions must be (N, 5): picture, left, top, right, bottom; not {tuple(regions.shape)}.")
    pictures = regions[:, 0]
    if len(regions) and (float(pictures.min()) < 0 or float(pictures.max()) >= len(x)):
        raise UserError(f"regions name a picture outside of a batch of {len(x)}.")
    if not regions.isfinite().all():
        raise UserError("regions must be finite numbers.")


class _PoolRegions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, regions: Tensor, bins: Bins, functions: Functions) -> Tensor:
        out, source = functions.pool(x, regions, bins)
        ctx.save_for_backward(source, regions)
        ctx.shape, ctx.functions = x.shape, functions
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        source, regions = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        return ctx.functions.pool_backward(gradient, source, regions, ctx.shape), None, None, None


class _AlignRegions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, regions: Tensor, bins: Bins, functions: Functions) -> Tensor:
        ctx.save_for_backward(regions)
        ctx.shape, ctx.bins, ctx.functions = x.shape, bins, functions
        return functions.align(x, regions, bins)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (regions,) = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        return ctx.functions.align_backward(gradient, regions, ctx.shape, ctx.bins), None, None, None


def pool_regions(x: Tensor, regions: Tensor, bins: Bins) -> Tensor:
    """RoI pooling (Fast R-CNN): the largest value in each bin of each region of a map.

    `regions` are (N, 5): the picture in the batch, then a box in pixels of the picture. The gradient reaches the map
    alone, not the regions.
    """
    _check_regions(x, regions)
    functions = _find_functions(x, regions)
    if functions is None:
        return reference.pool_regions(x, regions, bins)
    x = x.contiguous(memory_format=torch.channels_last)
    return _PoolRegions.apply(x, regions.detach().contiguous(), bins, functions)  # type: ignore[no-untyped-call]


def align_regions(x: Tensor, regions: Tensor, bins: Bins) -> Tensor:
    """RoI align (Mask R-CNN): the mean of the values at some points between pixels in each bin."""
    _check_regions(x, regions)
    functions = _find_functions(x, regions)
    if functions is None:
        return reference.align_regions(x, regions, bins)
    x = x.contiguous(memory_format=torch.channels_last)
    return _AlignRegions.apply(x, regions.detach().contiguous(), bins, functions)  # type: ignore[no-untyped-call]


def suppress(boxes: Tensor, scores: Tensor, threshold: float, limit: int | None = None) -> Tensor:
    """Non-maximum suppression: the numbers of the boxes that overlap no better one by more than `threshold` (IoU).

    In order of falling score; of equal scores the first box comes first. At most `limit` of them.
    """
    if boxes.shape != (len(scores), 4):
        raise UserError(f"{len(scores)} scores need boxes (N, 4), not {tuple(boxes.shape)}.")
    order = scores.sort(descending=True, stable=True).indices
    ranked = boxes.detach()[order].contiguous()
    functions = _find_functions(ranked)
    most = len(boxes) if limit is None else limit
    return order[(reference if functions is None else functions).suppress(ranked, threshold, most)]
