"""Freeze a network for inference: BN is folded into weights, and one call into C++ computes all layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from resnets.engine.folding import Conv, FrozenUnit, ScaleShift, copy_module, fold
from resnets.engine.one_call import OneCall, takes
from resnets.engine.threads import follow, hold
from resnets.errors import UserError
from resnets.nn import ResNet, Unit
from resnets.nn.network import check_input
from resnets.nn.structure import PartChanges, find_part_changes

__all__ = ["Conv", "Frozen", "FrozenCopy", "FrozenUnit", "ScaleShift", "freeze"]


class Frozen(nn.Module):
    """A network's class scores in testing. `freeze` makes it.

    One call computes them from a list of the layers. Until somebody reaches for the layers, nobody can have changed
    them; from then on each call compares them with those that the list was made from.
    """

    _one_call: OneCall | None  # of the layers as they were last
    _reached: bool

    def __init__(self, net: ResNet, changes: PartChanges) -> None:
        super().__init__()
        self.spec = net.spec
        self.stem = _freeze_part(net.stem, changes.stem)
        self.units = nn.Sequential(*map(_freeze_part, net.units, changes.units))
        self.last = _freeze_part(net.last)
        self.classifier: nn.Linear = copy_module(net.classifier)  # type: ignore[assignment]
        self._finish()

    def _finish(self) -> None:
        super().train(False)
        self.requires_grad_(False)
        vars(self).update(_one_call=None, _reached=False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        check_input(self.spec, x)
        if takes(x) and (run := self._find_one_call().run) is not None:
            follow(("test", x.shape))
            return run(x)
        hold()
        return self._forward_layers(x)

    def _forward_layers(self, x: Tensor) -> Tensor:
        """Layer by layer, in PyTorch."""
        x = x.contiguous(memory_format=torch.channels_last)
        return self.classifier(self.last(self.units(self.stem(x))).mean((2, 3)))

    def _find_one_call(self) -> OneCall:
        found, reached = self._one_call, self._reached
        if found is None or (reached and not found.is_current()):
            found = OneCall(self)
            vars(self).update(_one_call=found, _reached=reached)
        return found

    def train(self, mode: bool = True) -> Frozen:
        if mode:
            raise UserError(f"a frozen {self.spec.name} only tests; train the network that it was made from.")
        return self

    # --- who reaches for the layers -------------------------------------------------------------

    @property
    def _modules(self) -> dict[str, nn.Module | None]:
        vars(self)["_reached"] = True
        return vars(self)["_modules"]

    @_modules.setter
    def _modules(self, modules: dict[str, nn.Module | None]) -> None:
        vars(self)["_modules"] = modules

    def __getattr__(self, name: str) -> Any:
        vars(self)["_reached"] = True
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)["_reached"] = True
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Frozen:
        reached = self._reached
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        vars(self).update(_one_call=None, _reached=reached)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without the list, whose memory is its own. A shallow copy has the same layers as this network."""
        return {**vars(self), "_one_call": None, "_reached": True}


class FrozenCopy(Frozen):
    """A copy, which only tests, of a network that is not what its spec describes."""

    def __init__(self, net: ResNet) -> None:
        nn.Module.__init__(self)
        self.spec = net.spec
        self.copy = copy_module(net)
        self._finish()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        hold()
        return self.copy(x)


def _freeze_part(part: nn.Module, change: str | None = None) -> nn.Module:
    """A part of a network with BN folded, or a copy of one that was changed."""
    if change is not None:
        return copy_module(part)
    return FrozenUnit(part) if isinstance(part, Unit) else nn.Sequential(*fold(part))


def freeze(net: ResNet) -> Frozen:
    """A copy of a network that only tests, with BN folded into the convolutions; the network is left as it is.

    Float32 images on a CPU are computed in one call into C++, on as many threads as PyTorch has. Their scores do not
    depend on the number of threads or on the other images of the batch, to the byte, and differ from float64's by less
    than 1e-4 of the largest. Later changes of the copy take effect, but for those through `.data` or NumPy.

    Units that are not exactly what `net.spec` describes are copied as they are. With such a unit, with a gate or a
    hook, and without a C++ compiler, PyTorch computes layer by layer.
    """
    if not isinstance(net, ResNet):
        raise UserError(f"freeze takes a residual network of this package, not {type(net).__name__}.")
    changes = find_part_changes(net)
    with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode do not count their changes
        return FrozenCopy(changes.net) if changes.frame else Frozen(changes.net, changes)
