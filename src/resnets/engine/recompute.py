"""Run a part of a network again in the backward pass instead of keeping what it computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from resnets.nn.shortcuts import Dropout


class Recompute:
    """`part` as a function of tensors that keeps its inputs alone and is run a second time in the backward pass.

    The second time draws the same dropout masks and leaves BN's running statistics alone. `modules` are those that
    `part` runs.
    """

    def __init__(self, part: Callable[..., Tensor], modules: Iterable[nn.Module]) -> None:
        self.part = part
        inner = [m for module in modules for m in module.modules()]
        self.norms = [m for m in inner if isinstance(m, nn.BatchNorm2d)]
        self.random = any(isinstance(m, Dropout) for m in inner)

    def __call__(self, *tensors: Tensor) -> Tensor:
        return checkpoint(
            self.part,
            *tensors,
            use_reentrant=False,
            preserve_rng_state=self.random,
            context_fn=lambda: (nullcontext(), _on_copies(self.norms)),
        )


@contextmanager
def _on_copies(norms: Sequence[nn.BatchNorm2d]) -> Iterator[None]:
    """Let BN update copies of its running statistics, and discard them."""
    own = [dict(norm.named_buffers()) for norm in norms]
    try:
        for norm, buffers in zip(norms, own, strict=True):
            for name, buffer in buffers.items():
                setattr(norm, name, buffer.clone())
        yield
    finally:
        for norm, buffers in zip(norms, own, strict=True):
            for name, buffer in buffers.items():
                setattr(norm, name, buffer)
