"""The kernels, compiled on first use.

Nothing depends on them: without a compiler, or wherever anything fails, there is one line of notice and PyTorch does
the work alone.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from resnets.engine.native.kernels import ACT, ADD, Kernels, Sink, Source
from resnets.native_build import Library, Ways, load_or_say, open_checked

WAYS = Ways(  # for this very CPU: code for any of its kind would be slower than PyTorch's
    compile=tuple(("-std=c++17", "-O3", "-fPIC", "-pthread", cpu) for cpu in ("-march=native", "-mcpu=native")),
    link=(("-pthread",),),
)


class Loaded(NamedTuple):
    """The kernels, or why there are none."""

    kernels: Kernels | None
    how: str


@lru_cache(1)
def load() -> Loaded:
    """The kernels of this process, compiled on first use. A failure is reported once."""
    source = Path(__file__).with_name("kernels.cpp")
    library = Library(source, "kernels", WAYS, _open, salt=torch.__version__)
    instead = "PyTorch computes without kernels of our own (RESNETS_NATIVE=0 says so for good)"
    return Loaded(*load_or_say(library, instead))


def _open(path: Path) -> Kernels:
    return open_checked(path, "library of kernels", Kernels, _compute_correctly)


def _compute_correctly(kernels: Kernels) -> bool:
    """One small convolution of each kind against PyTorch's."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)

    x, h, a, d = random(2, 8, 5, 6), random(2, 24, 5, 6), *torch.randn(2, 8, generator=generator)
    activated = torch.relu(a.view(-1, 1, 1) * x + d.view(-1, 1, 1))
    for side, stride in ((1, 1), (3, 1), (3, 2)):
        weight = random(24, 8, side, side)
        add = h[:, :, ::stride, ::stride].contiguous(memory_format=torch.channels_last)
        y, _ = kernels.conv(Source(ACT, x, a=a, d=d), weight, Sink(ADD, add=add), stride=stride)
        expected = torch.nn.functional.conv2d(activated, weight, stride=stride, padding=side // 2) + add
        if not torch.allclose(y, expected, rtol=1e-4, atol=1e-4):
            return False
    return True
