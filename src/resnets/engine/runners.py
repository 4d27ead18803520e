"""Choose how each unit of a network is run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from resnets.engine import recompute_unit as lean
from resnets.engine.inplace_unit import InplaceUnit
from resnets.engine.native import ends as native
from resnets.engine.native import unit as native_unit
from resnets.engine.native.build import load
from resnets.engine.torch_compile import CompiledUnit
from resnets.nn import ResNet, Unit
from resnets.nn.structure import find_part_changes
from resnets.unit_spec import ORDERS, Order


class Choice(NamedTuple):
    """How a unit is run: by a function that computes what the unit does."""

    run: Callable[[Tensor], Tensor]
    runner: str  # its name
    reason: str


def choose_runners(net: ResNet, memory: str, compiled: bool = False, device: str = "cpu") -> list[Choice]:
    """The runner of each unit: the unit itself where the net is not exactly what its spec describes."""
    units: list[Unit] = list(net.units)  # type: ignore[arg-type]
    changes = find_part_changes(net)
    order = None if changes.frame else _unknown_order(ORDERS[net.spec.order])
    reasons = [order] * len(units) if order else changes.units
    return [
        choose(unit, memory, compiled, device) if reason is None else Choice(unit, "plain", reason)
        for unit, reason in zip(units, reasons, strict=True)
    ]


class Ends(NamedTuple):
    """How the parts around the units are run."""

    stem: Callable[[Tensor], Tensor]
    last: Callable[[Tensor], Tensor]
    classifier: Callable[[Tensor], Tensor]


def choose_ends(net: ResNet, memory: str, compiled: bool = False, device: str = "cpu") -> Ends:
    """The runners of the stem, the last activation and the classifier: themselves where they were changed."""
    last = net.last if memory == "fast" or compiled else partial(lean.recompute_act, net.last)
    kernels = load().kernels if device == "cpu" and not compiled else None
    if kernels is None:
        return Ends(net.stem, last, net.classifier)
    changes = find_part_changes(net)
    return Ends(
        net.stem if changes.stem else native.NativeStem(net.stem, kernels),
        last if changes.frame else native.choose_act(net.last, kernels),
        native.NativeClassifier(net.classifier, kernels) if native.is_plain_linear(net.classifier) else net.classifier,
    )


_BEFORE = ((), ("relu",), ("bn", "relu"))
_LAST = ((), ("bn",), ("bn", "relu"))
_AFTER = ((), ("relu",), ("bn", "relu"))


def _unknown_order(order: Order) -> str | None:
    """Why the runners cannot run an order of activations; a user may have registered another than the papers'."""
    if order.before in _BEFORE and order.last in _LAST and order.after in _AFTER:
        return None
    return "its order of activations is none of the papers'"


def choose(unit: Unit, memory: str, compiled: bool = False, device: str = "cpu") -> Choice:
    """The runner of a unit that is what its spec describes. This is the one place where it is chosen."""
    custom = unit.spec.shortcut.is_custom
    if compiled and not custom:
        return Choice(CompiledUnit(unit), "compiled", "torch.compile, once for each kind of unit")
    if device == "cpu" and not compiled and not (custom and memory == "min"):
        loaded = load()
        if loaded.kernels is not None and native_unit.fits(unit) is None:
            return Choice(native_unit.NativeUnit(unit, loaded.kernels), "native", "kernels of our own, as lean as lean")
    if custom:
        why = "may have side effects, so PyTorch runs it"
        return Choice(unit, "plain", f"the shortcut {unit.spec.shortcut.kind} is registered by a user, and {why}")
    if memory == "fast":
        return Choice(InplaceUnit(unit), "direct", "PyTorch's layers, ReLU and addition in place")
    return Choice(lean.RecomputeUnit(unit), "lean", "BN-ReLU is computed again in the backward pass")
