"""Measure what the parts of a network hold in training, on a short network of the same units."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from resnets.engine.arena import shared
from resnets.engine.recompute_unit import passing
from resnets.engine.runners import choose_ends, choose_runners
from resnets.engine.segments import Part
from resnets.nn import ResNet, build
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


class NetMemory(NamedTuple):
    """The parts of a network, in bytes for a number of pixels of images; all grow with the pixels."""

    stem: Part
    units: tuple[Part, ...]
    end: Part
    parameters: int  # of the whole network
    room: int  # bytes for maps that are read at once
    tidy: bool  # the arena holds the maps, and has no holes
    pixels: int


@lru_cache
def measure(spec: Spec, memory: str, device: str = "cpu") -> NetMemory:
    """What a network holds in a memory mode on a device: measured on the CPU, on images that every stage can halve."""
    side = 2 ** (spec.halvings + 1)
    net = build(dataclasses.replace(spec, blocks=tuple(min(n, _UNITS) for n in spec.blocks)), seed=0).train()
    with torch.random.fork_rng(devices=()):  # for the dropout shortcut
        passing.clear()
        given = shared.given
        stem, *short, end = _measure_parts(net, memory, side, device)
        room = passing.room.nbytes
        passing.clear()
    sizes = [_count_parameters(unit) for unit in net.units]
    parameters = _count_parameters(net) - sum(sizes)
    units: list[Part] = []
    rest = iter(zip(short, sizes, strict=True))
    for n in spec.blocks:
        own = [next(rest) for _ in range(min(n, _UNITS))]
        for part, size in own + [own[-1]] * (n - len(own)):
            units.append(part)
            parameters += size
    return NetMemory(stem, tuple(units), end, parameters, room, shared.given > given, _IMAGES * side**2)


def _count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _measure_parts(net: ResNet, memory: str, side: int, device: str) -> list[Part]:
    """Run the network forward and backward on real numbers."""
    choices = choose_runners(net, memory, device=device)
    ends = choose_ends(net, memory, device=device)
    runs: list[Callable[[Tensor], Tensor]] = [ends.stem, *(choice.run for choice in choices), ends.last]
    live, most, output = [], [], []
    entered: list[int] = []  # the most that was alive before the backward pass of each part, from the last to the first

    with ActivationMemory(_IMAGES) as counter:

        def enter(_: Tensor) -> None:
            entered.append(counter.most)
            counter.most = counter.live

        x = torch.zeros(_IMAGES, net.spec.in_channels, side, side)
        for run in runs:
            counter.most = counter.live
            x = run(x)
            x.register_hook(enter)  # type: ignore[no-untyped-call]
            live.append(counter.live)
            most.append(counter.most)
            output.append(x.nbytes)
        scores = ends.classifier(x.mean((2, 3)))
        del x
        torch.autograd.backward(scores.sum())
        enter(scores)
    backward = entered[:0:-1]  # each part's own, in the order of the parts
    kept = [now - before for now, before in zip(live, [0, *live], strict=False)]
    return [Part(k, max(f, b) - now, o) for k, f, b, now, o in zip(kept, most, backward, live, output, strict=True)]
