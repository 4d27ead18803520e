"""The most multiply-adds that this CPU can do, and those that a training step of our kernels really executes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import roofline
from resnets.native_build import Library, Ways
from resnets.spec import Spec

MULTIPLY_ADDS = 20_000_000_000  # of one round
_WAYS = Ways(compile=(("-std=c++17", "-O3", "-fPIC", "-pthread", "-march=native"),), link=(("-pthread",),))
_TILE, _PRODUCTS = 4, 36  # Winograd's F(4x4, 3x3): pixels of a tile's side, products of a tile


def peak() -> Callable[[], None]:
    """Multiply-adds in registers, on as many threads as PyTorch takes."""
    library, _ = Library(Path(__file__).with_name("fma.cpp"), "the loop of multiply-adds", _WAYS, _open).load()
    threads = torch.get_num_threads()
    return lambda: library.run(ctypes.c_int64(MULTIPLY_ADDS), ctypes.c_int64(threads))


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.run.restype = ctypes.c_float
    return library


def count_executed(spec: Spec, batch: int) -> int:
    """The multiply-adds of the convolutions of a step as the kernels do them, without Winograd's transforms."""
    total = 0
    for i, (conv, into, out) in enumerate(roofline.shapes(spec, batch)):
        n, channels, height, width = out
        if conv.kernel_size == (3, 3) and conv.stride == (1, 1) and into[1] % 8 == 0 and min(height, width) > 2:
            pixels = -(-height // _TILE) * -(-width // _TILE) * _PRODUCTS
            once = n * pixels * channels * into[1]
        else:
            once = out.numel() * conv.weight[0].numel()
        total += once * (3 if i else 2)  # forward and both gradients; images need none
    return total
