"""A unit run by the kernels: F and its meeting with the shortcut as one function."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.engine.inplace_unit import split_layers
from resnets.engine.native.branch import Branch, Step
from resnets.engine.native.kernels import Kernels
from resnets.engine.native.masks import draw_mask
from resnets.engine.threads import hold
from resnets.nn import Unit
from resnets.nn import shortcuts as kinds

_Act = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]
_JOINED = (kinds.Identity, kinds.Scale, kinds.Dropout, kinds.Plain, kinds.ShortcutGate, kinds.ExclusiveGate)


class NativeUnit:
    """x -> f(h(x) + F(x)), as `Unit` does it. `sums` of x and x x, where the unit before has them, save a pass."""

    def __init__(self, unit: Unit, kernels: Kernels) -> None:
        self.unit, self.kernels = unit, kernels
        own = [module for name, part in unit.named_children() if not _is_users(unit, name) for module in part.modules()]
        self.convs = [module for module in own if isinstance(module, nn.Conv2d)]
        self.norms = [module for module in own if isinstance(module, nn.BatchNorm2d)]
        self.shared = _act(unit.shared, kernels)
        self.resize = _resize(unit.resize, kernels)
        self.joins = _joins(unit)
        self.branch, self.after = _cut(unit, kernels, self.joins)

    def __call__(self, x: Tensor) -> Tensor:
        return self.with_sums(x, None)[0]

    def with_sums(self, x: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if not self._suits(x):
            hold()
            return self.unit(x), None
        draws_rows = isinstance(self.unit.shortcut, kinds.Dropout) and not is_last(x)
        if self.shared is not None:
            x, sums = self.shared(x, sums)
        h = self.resize(x) if not self.joins or (self.branch.adds and self.branch.pad is None) else None
        if draws_rows and h is not None:
            h = h.contiguous()
        r, sums = self.branch(x, sums, None if h is None else self._shorten(h))
        if not self.joins:
            assert h is not None
            r, sums = self.unit.shortcut(h, r), None
        y, sums = (r, sums) if self.after is None else self.after(r, sums)
        # Masks are drawn in the order of memory, also by the next unit: as without the kernels.
        return y.contiguous() if draws_rows else y, sums

    def _shorten(self, h: Tensor) -> Tensor:
        """What is added to r: h(x) of a shortcut that does not read r."""
        match self.unit.shortcut:
            case kinds.Scale(a=a) if a != 1:
                return a * h
            case kinds.Dropout(rescale=True, p=p, training=training):
                return functional.dropout(h, p, training)
            case kinds.Dropout(p=p, training=True):
                return h * draw_mask(self.branch.kernels, h, 1 - p)
            case kinds.Dropout(p=p):
                return (1 - p) * h
        return h

    def _suits(self, x: Tensor) -> bool:
        """Float32 on the CPU, in a training step with nothing frozen by the user; else the unit itself is run."""
        return suits(x, self.convs, self.norms)


def _joins(unit: Unit) -> bool:
    """Whether a branch can add the shortcut itself. A factor goes through ReLU only if it is positive."""
    shortcut, relu = unit.shortcut, hasattr(split_layers(unit)[1][-1], "relu")
    return type(shortcut) in _JOINED and not (isinstance(shortcut, kinds.Scale) and shortcut.b <= 0 and relu)


def native_act(layers: nn.Module, kernels: Kernels) -> Branch | None:
    """BN, ReLU as a branch without convolutions; None if there are no such layers."""
    return Branch(kernels, [], tail=layers.bn, relu="first") if _words(layers) == ["bn", "relu"] else None  # type: ignore[arg-type]


def _act(layers: nn.Module, kernels: Kernels) -> _Act | None:
    """Activations as a function of a map and its sums; None if there are none."""
    return native_act(layers, kernels) or (None if not len(_words(layers)) else lambda x, _: (layers(x), None))


def _resize(layers: nn.Module, kernels: Kernels) -> Callable[[Tensor], Tensor]:
    conv = getattr(layers, "conv", None)
    if conv is None:
        return layers
    branch = Branch(kernels, [Step(conv, None, False)], tail=getattr(layers, "bn", None))
    return lambda x: branch(x)[0]


def _cut(unit: Unit, kernels: Kernels, joins: bool) -> tuple[Branch, _Act | None]:
    """F up to where it meets the shortcut, or beyond it, and what is left to do behind that."""
    convs, (*acts, tail) = split_layers(unit)
    steps = [Step(conv, getattr(act, "bn", None), hasattr(act, "relu")) for conv, act in zip(convs, acts, strict=True)]
    bn, relu = getattr(tail, "bn", None), "first" if hasattr(tail, "relu") else ""
    after = _words(unit.after)
    adds = joins and not isinstance(unit.shortcut, kinds.Plain)
    times = unit.shortcut.b if joins and isinstance(unit.shortcut, kinds.Scale) else 1.0
    pad = _find_pad(unit)
    if joins and isinstance(unit.shortcut, kinds.ShortcutGate):
        ends = after == ["relu"]
        branch = Branch(kernels, steps, adds, bn, relu, gate=unit.shortcut, gate_relu=ends)
        return branch, None if ends else _act(unit.after, kernels)
    if after == ["relu"] and joins and bn is not None and not relu:
        return Branch(kernels, steps, adds, bn, "last" if adds else "first", pad, times), None
    return Branch(kernels, steps, adds, bn, relu, pad, times), _act(unit.after, kernels)


def _find_pad(unit: Unit) -> kinds.Pad | None:
    """Option A by subsampling, where nothing else is done to h."""
    resize = unit.resize
    padded = isinstance(unit.shortcut, kinds.Identity) and isinstance(resize, kinds.Pad) and not resize.pool
    return resize if padded else None  # type: ignore[return-value]


def _words(layers: nn.Module) -> list[str]:
    return list(dict(layers.named_children()))


def _is_users(unit: Unit, part: str) -> bool:
    """Whether a part of a unit is a shortcut of a user's own, which is called as it is."""
    return part == "shortcut" and unit.spec.shortcut.is_custom


def suits(x: Tensor, convs: list[nn.Conv2d], norms: list[nn.BatchNorm2d]) -> bool:
    """Whether the kernels can read a map and the numbers of layers, all of which learn."""
    return (
        type(x) is Tensor
        and is_plain(x)
        and not torch.is_autocast_enabled("cpu")
        and all(is_plain(conv.weight) and conv.weight.requires_grad for conv in convs)
        and all(is_plain(conv.bias) and conv.bias.requires_grad for conv in convs if conv.bias is not None)
        and all(norm.training and _has_plain_vectors(norm) for norm in norms)
    )


def is_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def is_plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu"


def _has_plain_vectors(norm: nn.BatchNorm2d) -> bool:
    """Whether the kernels can read and write the numbers of a BN where they lie in memory."""
    vectors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    learned = norm.weight.requires_grad and norm.bias.requires_grad
    return learned and all(v is not None and is_plain(v) and v.is_contiguous() for v in vectors)


def fits(unit: Unit) -> str | None:
    """Why the kernels cannot run a unit, or None."""
    for name, part in unit.named_children():
        for conv in part.modules():
            odd = isinstance(conv, nn.Conv2d) and (conv.in_channels % 8 or conv.out_channels % 8)
            if odd and not _is_users(unit, name):
                return "the kernels want channels in multiples of 8"
    return None
