"""Detect in about a microsecond whether a layer was changed since the runners were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from torch import nn

from resnets.nn.structure import HOOKS

_APART = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *HOOKS}


class _Seen(NamedTuple):
    """A module as it was."""

    module: nn.Module
    kind: type[nn.Module]
    attributes: int  # how many it has: a method of its own is one more
    read: Callable[[dict[str, Any]], Any]  # its hooks, children and settings
    values: Any
    tensors: tuple[type, ...]


class Watch:
    """The modules as they are now. Parameters and buffers may get other values, also other tensors of the same kind."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._seen = [_look(module) for module in modules]
        self._forwards = {seen.kind: seen.kind.forward for seen in self._seen}

    def is_unchanged(self) -> bool:
        """Whether type, settings, children, hooks and methods of every module are what they were."""
        if any(kind.forward is not forward for kind, forward in self._forwards.items()):
            return False
        for module, kind, attributes, read, values, tensors in self._seen:
            own = module.__dict__
            if (
                type(module) is not kind
                or len(own) != attributes
                or read(own) != values
                or (*map(type, own["_parameters"].values()), *map(type, own["_buffers"].values())) != tensors
            ):
                return False
        return True


def _look(module: nn.Module) -> _Seen:
    own = vars(module)
    read = itemgetter(*HOOKS, "_modules", *(name for name in own if name not in _APART))
    values = tuple(dict(value) if isinstance(value, dict) else value for value in read(own))
    tensors = (*map(type, module._parameters.values()), *map(type, module._buffers.values()))
    return _Seen(module, type(module), len(own), read, values, tensors)
