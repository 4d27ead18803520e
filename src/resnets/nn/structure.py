"""Compare a module with the one that a spec describes: what was changed about it since it was built.

Code that reads a network's weights instead of calling its layers (kernels, folding, exporters, files of weights) is
correct only while nothing was changed, so it asks here first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from resnets.nn import chain, shortcuts
from resnets.nn.base import Network
from resnets.nn.conv import Subsampled
from resnets.nn.network import ResNet, Stem, describe
from resnets.nn.unit import Residual, Unit
from resnets.spec import Spec
from resnets.unit_spec import UnitSpec

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
SET_BY_USERS = ("eps", "momentum")  # of BN
_CONTENTS = ("_parameters", "_buffers", "_modules")
_INTERNAL = {
    "training",
    "spec",
    "metadata",
    "_is_full_backward_hook",
    "_non_persistent_buffers_set",
    *HOOKS,
    *_CONTENTS,
}
_LAYERS = (
    *(nn.Sequential, nn.Identity, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.Linear),
    *(Subsampled, Stem, Residual, Unit, ResNet),
    *(shortcuts.Identity, shortcuts.Scale, shortcuts.ExclusiveGate, shortcuts.ShortcutGate, shortcuts.Gate),
    *(shortcuts.Dropout, shortcuts.Plain, shortcuts.Pad),
    *(chain.ChainNet, *chain.LAYERS, nn.ELU, nn.PReLU, nn.Dropout, nn.LocalResponseNorm),
    *(nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
)
_SETTINGS = (bool, int, float, str, tuple)  # of a user's own module, in which an edit is seen
_FORWARDS = {kind: kind.forward for kind in _LAYERS}


class PartChanges(NamedTuple):
    """The first change of each part of a net, or None where the part is what the spec describes."""

    net: ResNet  # of a prepared network the one that it runs
    frame: str | None  # the net itself, the sequence of its units and its last activation
    stem: str | None
    units: list[str | None]


class NetChange(NamedTuple):
    """The first change of a net, and the names in its state dict that its spec does not describe in this shape."""

    sentence: str
    tensors: tuple[str, ...]


def find_part_changes(net: ResNet) -> PartChanges:
    """Compare the parts of a net with its spec. Hooks are changes.

    BN's eps and momentum may be other numbers: code that computes BN reads them from the layer.
    """
    net = net.original
    described = _describe_frame(net.spec)
    frame = next(_frame_changes(net, described), None)
    if frame is not None:
        return PartChanges(net, frame, frame, [frame] * len(net.units))
    stem = next(changes(net.stem, described.stem, "stem", hooks=True, ignore=SET_BY_USERS), None)
    specs = net.spec.units()
    if len(specs) != len(net.units):
        sentence = f"the net has {len(net.units)} units and its spec describes {len(specs)}"
        return PartChanges(net, None, stem, [sentence] * len(net.units))
    pairs = zip(net.units, map(describe_unit, specs), strict=True)
    units = [next(changes(unit, wanted, hooks=True, ignore=SET_BY_USERS), None) for unit, wanted in pairs]
    return PartChanges(net, None, stem, units)


def find_change(net: Network, *, hooks: bool = False, ignore: Collection[str] = ("momentum",)) -> NetChange | None:
    """Compare a whole net with its spec; `ignore` names settings of BN that may differ."""
    described = describe(net.spec)
    sentence = next(changes(net.original, described, hooks=hooks, ignore=ignore), None)
    own, theirs = ({name: tensor.shape for name, tensor in n.state_dict().items()} for n in (net, described))
    tensors = tuple(name for name in {**theirs, **own} if theirs.get(name) != own.get(name))
    return NetChange(sentence or "its state dict has other tensors", tensors) if sentence or tensors else None


def _frame_changes(net: ResNet, described: ResNet) -> Iterator[str]:
    yield from _own_changes(net, described, "the net", hooks=True)
    if list(net._modules) != list(described._modules):
        yield f"the net has the layers {', '.join(net._modules)}"
        return
    yield from _own_changes(net.units, described.units, "units", hooks=True)
    yield from changes(net.last, described.last, "last", hooks=True, ignore=SET_BY_USERS)


@lru_cache(maxsize=64)
def describe_unit(spec: UnitSpec) -> Unit:
    """The unit of a spec, on the meta device."""
    with torch.device("meta"):
        return Unit(spec)


@lru_cache(maxsize=64)
def _describe_frame(spec: Spec) -> ResNet:
    with torch.device("meta"):
        return ResNet(dataclasses.replace(spec, blocks=(1,) * len(spec.blocks)))


def changes(
    module: nn.Module, described: nn.Module, name: str = "", *, hooks: bool, ignore: Collection[str] = ()
) -> Iterator[str]:
    """Sentences that say where and how a module differs from the one that is described."""
    what = name or ("the net" if isinstance(described, Network) else "the unit")
    yield from _own_changes(module, described, what, hooks=hooks, ignore=ignore)
    own, theirs = module._modules, described._modules
    if list(own) != list(theirs):
        yield f"{what} has the layers {', '.join(own) or 'none'}, not {', '.join(theirs) or 'none'}"
        return
    for key, part in theirs.items():
        inside, child = f"{name}.{key}" if name else key, own[key]
        if child is None or part is None:
            yield f"{inside} is missing"
        else:
            yield from changes(child, part, inside, hooks=hooks, ignore=ignore)


def _own_changes(
    module: nn.Module, described: nn.Module, what: str, *, hooks: bool, ignore: Collection[str] = ()
) -> Iterator[str]:
    """The changes of a module, without those of its children."""
    kind = type(described)
    if not is_same_kind(module, described):
        yield f"{what} is {_name(type(module))}, not {_name(kind)}"
        return
    if kind in _FORWARDS and kind.forward is not _FORWARDS[kind]:
        yield f"{kind.__name__}.forward was replaced"
    own, theirs = vars(module), vars(described)
    for key in own.keys() - theirs.keys():
        if hasattr(kind, key):  # it hides the attribute of the class
            yield f"{what} has {key} of its own"
    if hooks and any(own[key] for key in HOOKS):
        yield f"{what} has a hook"
    for key, value in theirs.items():
        if key in ignore and type(own.get(key)) is type(value):
            continue
        if kind not in _FORWARDS and not (isinstance(value, _SETTINGS) and isinstance(own.get(key), _SETTINGS)):
            continue  # other attributes of a user's own module may change
        if key not in _INTERNAL and not _equal(own.get(key), value):
            yield f"{what} has {key} {own.get(key)!r}, not {value!r}"
    yield from _tensor_changes(module, described, what)


def _tensor_changes(module: nn.Module, described: nn.Module, what: str) -> Iterator[str]:
    for contents, kind in (("_parameters", nn.Parameter), ("_buffers", Tensor)):
        own: dict[str, Any] = getattr(module, contents)
        theirs: dict[str, Tensor | None] = getattr(described, contents)
        if own.keys() != theirs.keys():
            yield f"{what} has the tensors {', '.join(own) or 'none'}, not {', '.join(theirs) or 'none'}"
            continue
        for name, tensor in theirs.items():
            found = own[name]
            if (found is None) != (tensor is None):
                yield f"{what} has {'no' if found is None else 'a'} {name}"
            elif tensor is not None and (type(found) is not kind or found.shape != tensor.shape):
                yield f"{what} has a {name} of another type or shape"


def is_same_kind(module: nn.Module, described: nn.Module) -> bool:
    """Whether two modules have one class. Each call of `Shortcut.module` may make a new class of the same name."""
    a, b = type(module), type(described)
    if b in _FORWARDS:
        return a is b
    return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _name(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}"
