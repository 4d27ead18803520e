"""A frozen network computed by one call into C++, where every layer of it is one that the library knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter, eq, getitem, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_modules

from resnets.engine.folding import Conv, FrozenUnit, ScaleShift
from resnets.engine.native.network import IMAGES, Functions, Layers, Network, load
from resnets.nn import shortcuts

_SETTINGS: dict[type[nn.Module], tuple[str, ...]] = {  # what the layers were read from, beside tensors
    Conv: ("relu", "stride", "padding"),
    ScaleShift: ("relu",),
    FrozenUnit: ("adds",),
    nn.MaxPool2d: ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"),
    shortcuts.Pad: ("zeros", "stride", "pool"),
    shortcuts.Scale: ("a", "b"),
    shortcuts.Dropout: ("p", "rescale", "training"),
}
_FORWARDS = {  # of every layer that the library computes
    kind: kind.forward
    for kind in (
        *(nn.Sequential, nn.Identity, nn.ReLU, nn.MaxPool2d, nn.Linear, Conv, ScaleShift, FrozenUnit),
        *(shortcuts.Identity, shortcuts.Scale, shortcuts.Dropout, shortcuts.Plain, shortcuts.Pad),
    )
}
_CONTENTS = ("_parameters", "_buffers", "_modules")
_FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_version = attrgetter("_version")
_read: Callable[[dict[str, Any], str], Any] = getitem


class UnknownLayerError(Exception):
    """The library does not know a layer."""


class OneCall:
    """The scores of a frozen network by one call, as long as the network is what it was.

    `run` is None where the library does not know a layer of the network, or cannot be compiled.
    """

    def __init__(self, net: nn.Module) -> None:
        self._seen = Snapshot(net)
        self.run: Network | None = None
        library = load().library
        if library is not None and self._seen.is_plain():
            with suppress(UnknownLayerError):
                self.run = _build(net, library)

    def is_current(self) -> bool:
        """Whether no layer, setting, hook or tensor of the network was changed since."""
        return self._seen.is_current()


def takes(x: Tensor) -> bool:
    """Whether the library can read images, and nobody wants to see the layers being called."""
    return (
        type(x) is Tensor
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and x.numel() > 0
        and not x.is_neg()
        and not torch.is_autocast_enabled("cpu")
        and not _is_observed()
        and all(kind.forward is forward for kind, forward in _FORWARDS.items())
    )


def _is_observed() -> bool:
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch_modules._has_any_global_hook()  # type: ignore[no-untyped-call]
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


class Snapshot:
    """The layers of a frozen network as they are now. There may be a thousand; comparing makes no new objects.

    A tensor that is changed in place is noticed by its version, which PyTorch counts. Changes through `.data` or NumPy
    are not counted and not noticed.
    """

    def __init__(self, net: nn.Module) -> None:
        modules = list(net.modules())
        self._own = own = list(map(vars, modules))
        inner = own[1:]  # hooks of the network itself are called around the one call
        self._hooks: list[dict[str, Any]] = [attributes[name] for attributes in inner for name in _FORWARD_HOOKS]
        self._hooked = any(self._hooks)
        self._owners = [*own, *(attributes["_modules"] for attributes in own)]
        self._counts = list(map(len, self._owners))
        entries = [(d, name) for attributes in own for d in (attributes[part] for part in _CONTENTS) for name in d]
        entries += [(vars(m), name) for m in modules for name in _SETTINGS.get(type(m), ())]
        self._places: list[dict[str, Any]] = [place for place, _ in entries]
        self._names: list[str] = [name for _, name in entries]
        self._values: list[Any] = list(map(_read, self._places, self._names))
        self._tensors: list[Tensor] = [value for value in self._values if isinstance(value, Tensor)]
        self._parameters = list(net.parameters())
        self._memory = list(map(_locate, self._parameters))
        counted = not any(tensor.is_inference() for tensor in self._tensors)
        self._versions = list(map(_version, self._tensors)) if counted else []

    def is_plain(self) -> bool:
        """Whether all tensors are float32 on the CPU and count their versions, without hooks and methods of users."""
        return (
            all(type(t) in (Tensor, nn.Parameter) and t.dtype == torch.float32 for t in self._tensors)
            and all(t.device.type == "cpu" and t.layout == torch.strided and not t.is_neg() for t in self._tensors)
            and len(self._versions) == len(self._tensors)
            and not self._hooked
            and not any("forward" in attributes for attributes in self._own)
        )

    def is_current(self) -> bool:
        try:
            return (
                any(self._hooks) == self._hooked
                and all(map(is_, map(_read, self._places, self._names), self._values))
                and all(map(eq, map(len, self._owners), self._counts))
                and (not self._versions or all(map(eq, map(_version, self._tensors), self._versions)))
                and list(map(_locate, self._parameters)) == self._memory
            )
        except KeyError:  # something was removed
            return False


def _locate(parameter: nn.Parameter) -> tuple[int, torch.dtype]:
    """`Module.to` changes a parameter without counting it as a change."""
    return parameter.data_ptr(), parameter.dtype


# --- the layers of a frozen network ------------------------------------------------------------


def _build(net: Any, library: Functions) -> Network:
    layers = Layers(net.spec.in_channels)
    x = add_steps(layers, net.stem, IMAGES)
    if type(net.units) is not nn.Sequential:
        raise UnknownLayerError
    for unit in net.units:
        x = add_unit(layers, unit, x)
    x = layers.mean(add_steps(layers, net.last, x))
    linear = net.classifier
    if type(linear) is not nn.Linear or linear.in_features != layers.channels[x]:
        raise UnknownLayerError
    scores = layers.conv(x, linear.weight.detach()[:, :, None, None], linear.bias)
    return Network(library, layers, scores)


def add_unit(layers: Layers, unit: nn.Module, x: int) -> int:
    if type(unit) is not FrozenUnit:
        raise UnknownLayerError
    if any(isinstance(m, Conv) and m.stride != (1, 1) for m in unit.modules()):
        layers.begin_segment()
    x = add_steps(layers, unit.shared, x)
    h = add_steps(layers, unit.resize, x)
    layers.keep(x)
    layers.keep(h)
    r = add_steps(layers, unit.residual, x)
    if unit.adds and type(unit.last) is Conv:  # its ReLU comes behind the addition
        y = layers.sum(h, _add_conv(layers, unit.last, r))
        y = layers.relu(y) if unit.last.relu else y
    else:
        r = _add_step(layers, unit.last, r)
        y = _add_shortcut(layers, unit.shortcut, h, r)
    return add_steps(layers, unit.after, y)


def _add_shortcut(layers: Layers, shortcut: nn.Module, h: int, r: int) -> int:
    kind = type(shortcut)
    if kind is shortcuts.Identity:
        return layers.sum(h, r)
    if isinstance(shortcut, shortcuts.Scale) and kind is shortcuts.Scale:
        return layers.sum(h, r, shortcut.a, shortcut.b)
    if isinstance(shortcut, shortcuts.Dropout) and kind is shortcuts.Dropout and not shortcut.training:
        return layers.sum(h, r, shortcut.factor())
    if kind is shortcuts.Plain:
        return r
    raise UnknownLayerError


def add_steps(layers: Layers, steps: nn.Module, x: int) -> int:
    if type(steps) is not nn.Sequential:
        raise UnknownLayerError
    for step in steps:
        x = _add_step(layers, step, x)
    return x


def _add_step(layers: Layers, step: nn.Module, x: int) -> int:
    match step:
        case Conv() if type(step) is Conv:
            y = _add_conv(layers, step, x)
            return layers.relu(y) if step.relu else y
        case ScaleShift() if type(step) is ScaleShift and x != IMAGES:
            return layers.scale_shift(x, step.scale, step.shift, step.relu)
        case nn.ReLU() if type(step) is nn.ReLU and x != IMAGES:
            return layers.relu(x)
        case nn.Identity() if type(step) is nn.Identity:
            return x
        case nn.MaxPool2d() if type(step) is nn.MaxPool2d and x != IMAGES:
            return _add_pool(layers, step, x)
        case shortcuts.Pad() if type(step) is shortcuts.Pad and x != IMAGES:
            return layers.resize(x, (step.zeros[4], step.zeros[5]), step.stride, step.pool and step.stride > 1)
    raise UnknownLayerError


def _add_conv(layers: Layers, conv: Conv, x: int) -> int:
    """W x + b, without its ReLU."""
    down, right = conv.stride
    top, left = conv.padding
    _, into, height, width = conv.weight.shape
    if down != right or top != left or height != width or into != layers.channels[x]:
        raise UnknownLayerError
    return layers.conv(x, conv.weight, conv.bias, down, top)


def _add_pool(layers: Layers, pool: nn.MaxPool2d, x: int) -> int:
    window = (pool.kernel_size, pool.stride, pool.padding)
    if not all(isinstance(n, int) for n in window) or pool.dilation != 1 or pool.return_indices or pool.ceil_mode:
        raise UnknownLayerError
    return layers.pool(x, *window)  # type: ignore[arg-type]
