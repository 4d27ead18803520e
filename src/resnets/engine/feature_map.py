"""The map that some layers make of images, in testing: BN folded, and one call into C++ where the library knows them.

`freeze` does the same for whole networks and their scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from resnets.engine.folding import FrozenUnit, fold
from resnets.engine.native.network import IMAGES, Functions, Layers, Network, Plan, _find_sizes, _Images, load
from resnets.engine.one_call import UnknownLayerError, add_steps, add_unit, takes
from resnets.nn import Unit


class MapNetwork(Network):
    """A list of layers whose result is a map: the library copies as many numbers as it is asked to."""

    def __call__(self, x: Tensor) -> Tensor:
        plan, (height, width) = self._find_plan(*x.shape[2:]), self._find_size(*x.shape[2:])
        found = torch.empty(len(x), height, width, self._padded)
        self.library.run(plan.network, _Images(x.data_ptr(), *x.shape[:2], *x.stride()), found)
        return found[..., : self.layers.channels[self.scores]].permute(0, 3, 1, 2)

    def _plan(self, height: int, width: int) -> Plan:
        plan, (rows, columns) = super()._plan(height, width), self._find_size(height, width)
        plan.network.classes = rows * columns * self._padded
        return plan

    def _find_size(self, height: int, width: int) -> tuple[int, int]:
        return _find_sizes(self.layers.steps, height, width)[self.scores]

    @property
    def _padded(self) -> int:
        return self.library.pad(self.layers.channels[self.scores])


class FrozenMap:
    """Layers and units as a function that only tests; later changes of them do not reach it."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        with torch.inference_mode(False), torch.no_grad():
            steps = [FrozenUnit(part) if isinstance(part, Unit) else nn.Sequential(*fold(part)) for part in parts]
            self.steps = nn.Sequential(*steps).eval().requires_grad_(False)
        self._run: MapNetwork | None = None
        self._tried = False

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        if takes(x) and (run := self._find_run(x.shape[1])) is not None:
            return run(x)
        return self.run_layers(x)

    @torch.no_grad()
    def run_layers(self, x: Tensor) -> Tensor:
        """Layer by layer in PyTorch: for maps of many channels, which the library does not read as images."""
        return self.steps(x.contiguous(memory_format=torch.channels_last))

    def _find_run(self, channels: int) -> MapNetwork | None:
        if not self._tried:
            self._tried, library = True, load().library
            with suppress(UnknownLayerError):
                if library is not None and all(t.dtype == torch.float32 for t in self.steps.buffers()):
                    self._run = _build(self.steps, library, channels)
        return self._run


def _build(steps: nn.Sequential, library: Functions, channels: int) -> MapNetwork:
    layers = Layers(channels)
    x = IMAGES
    for step in steps:
        x = add_unit(layers, step, x) if isinstance(step, FrozenUnit) else add_steps(layers, step, x)
    if x == IMAGES:
        raise UnknownLayerError
    return MapNetwork(library, layers, x)
