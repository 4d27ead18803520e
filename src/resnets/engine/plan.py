"""Which way each unit of a network is run, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from resnets.engine import lean
from resnets.engine.compiling import CompiledUnit
from resnets.engine.direct import DirectUnit
from resnets.engine.native import unit as native
from resnets.engine.native.build import load
from resnets.nn import Unit


class Choice(NamedTuple):
    """How a unit is run: by a function that computes what the unit does."""

    run: Callable[[Tensor], Tensor]
    runner: str  # its name
    reason: str


def choose(unit: Unit, memory: str, compiled: bool = False, device: str = "cpu") -> Choice:
    """The runner of a unit in a memory mode. This is the one place where it is chosen."""
    if not compiled and device == "cpu" and all(lean.fits(m) for m in unit.modules() if isinstance(m, _NormBase)):
        loaded = load()
        if loaded.kernels is not None and native.fits(unit) is None:
            return Choice(native.NativeUnit(unit, loaded.kernels), "native", "kernels of our own, as lean as lean")
    if memory == "fast":
        if compiled:
            return Choice(CompiledUnit(unit), "compiled", "torch.compile, once for each kind of unit")
        return Choice(DirectUnit(unit), "direct", "PyTorch's layers, ReLU and addition in place")
    for module in unit.modules():
        if isinstance(module, _NormBase) and not lean.fits(module):
            return Choice(unit, "plain", f"there is no lean form of {type(module).__name__} as it is set here")
    return Choice(lean.LeanUnit(unit), "lean", "BN-ReLU is computed again in the backward pass")
