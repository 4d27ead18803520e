"""What the parts of a network hold in training, counted on a short network of the same units."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from resnets.engine.arena import shared
from resnets.engine.recompute_unit import passing, recompute_act
from resnets.engine.runners import choose_runners
from resnets.engine.segments import Part
from resnets.nn import build
from resnets.spec import Spec

_IMAGES = 2  # BN needs two
_UNITS = 3  # of a stage; those behind the third cost what it costs


class ActivationMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the maps that are alive: of all that has a row for each image."""

    def __init__(self, images: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.images = images
        self.known: set[int] = set()
        self.live = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.dim() == 4 and tensor.shape[0] == self.images:
                storage = tensor.untyped_storage()
                if storage._cdata != passing.room.untyped_storage()._cdata:
                    self._add(storage)
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.live += size
            self.most = max(self.most, self.live)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


class Counted(NamedTuple):
    """The parts of a network, in bytes for so many pixels of images; all grow with the pixels."""

    stem: Part
    units: tuple[Part, ...]
    end: Part
    room: int  # for maps that pass
    tidy: bool  # maps have places in the arena, which has no holes
    pixels: int


@lru_cache
def count(spec: Spec, memory: str, device: str = "cpu") -> Counted:
    """What a network holds in a memory mode on a device: counted on the CPU, on small images.

    They are halved to the end without a remainder.
    """
    side = 2 ** (spec.halvings + 1)
    with torch.random.fork_rng(devices=()):  # for the dropout shortcut
        passing.clear()
        given = shared.given
        stem, *short, end = _measured(spec, memory, side, device)
        room = passing.room.nbytes
        passing.clear()
    units: list[Part] = []
    rest = iter(short)
    for n in spec.blocks:
        own = [next(rest) for _ in range(min(n, _UNITS))]
        units += own + [own[-1]] * (n - len(own))
    return Counted(stem, tuple(units), end, room, shared.given > given, _IMAGES * side**2)


def _measured(spec: Spec, memory: str, side: int, device: str) -> list[Part]:
    """The parts of the network with at most three units a stage: run forward, then backward, on real numbers."""
    net = build(dataclasses.replace(spec, blocks=tuple(min(n, _UNITS) for n in spec.blocks)), seed=0).train()
    choices = choose_runners(net, memory, device=device)
    runs: list[Callable[[Tensor], Tensor]] = [net.stem, *(choice.run for choice in choices)]
    runs.append(net.last if memory == "fast" else partial(recompute_act, net.last))
    live, most, output = [], [], []
    entered: list[int] = []  # the most that was alive before the backward pass of each part, from the last to the first

    with ActivationMemory(_IMAGES) as ledger:

        def enter(_: Tensor) -> None:
            entered.append(ledger.most)
            ledger.most = ledger.live

        x = torch.zeros(_IMAGES, spec.in_channels, side, side)
        for run in runs:
            ledger.most = ledger.live
            x = run(x)
            x.register_hook(enter)  # type: ignore[no-untyped-call]
            live.append(ledger.live)
            most.append(ledger.most)
            output.append(x.nbytes)
        scores = net.forward_head(x)
        del x
        torch.autograd.backward(scores.sum())
        enter(scores)
    backward = entered[:0:-1]  # each part's own, in the order of the parts
    kept = [now - before for now, before in zip(live, [0, *live], strict=False)]
    return [Part(k, max(f, b) - now, o) for k, f, b, now, o in zip(kept, most, backward, live, output, strict=True)]
