"""A unit taken apart: y = h(x) + F^(x), x' = f(y), and the factor with which h passes x on.

F^ is the papers' F, times what the shortcut multiplies it by, as in equation (7) of v2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from resnets.errors import UserError
from resnets.nn import ResNet, ShortcutModule, Unit
from resnets.nn.structure import HOOKS, describe_unit, is_same_kind


class Parts(NamedTuple):
    h: Tensor  # of x
    added: Tensor  # F^(x)
    out: Tensor  # f(y)
    cut: Tensor | None  # which values the ReLU of f sets to zero; None where f has no ReLU


def require_known_units(net: ResNet) -> None:
    """Refuse units that `take_apart` would not compute as they do themselves."""
    for i, unit in enumerate(net.units):
        own = vars(unit)
        if type(unit) is not Unit or "forward" in own or any(own[hooks] for hooks in HOOKS):
            raise UserError(
                f"unit {i} has a forward or a hook of its own, so its parts are not known: remove it first."
            )
        if not is_same_kind(unit.shortcut, describe_unit(unit.spec).shortcut):
            raise UserError(
                f"unit {i} has a shortcut of its own, {type(unit.shortcut).__name__}, which is not analysed: "
                "register it with resnets.register_shortcut."
            )


def run(unit: Unit, x: Tensor, seed: int) -> Tensor:
    """`unit(x)`; the seed decides what a dropout shortcut drops."""
    torch.manual_seed(seed)
    return unit(x)


def take_apart(unit: Unit, x: Tensor, seed: int) -> Parts:
    """What `run` does, step by step. Gradients flow through `out` alone."""
    a = unit.shared(x)
    s, r = unit.resize(a), unit.residual(a)
    torch.manual_seed(seed)
    out = y = unit.shortcut(s, r)
    cut = None
    for layer in unit.after:
        if isinstance(layer, nn.ReLU):
            cut = out.detach() < 0
        out = layer(out)
    with torch.no_grad():
        torch.manual_seed(seed)  # the same mask
        h = unit.shortcut(s, torch.zeros_like(y))  # every shortcut is h(x) where F is zero
        times = unit.shortcut.residual_factor(s) if isinstance(unit.shortcut, ShortcutModule) else None
        return Parts(h, y.detach() - h if times is None else times * r.detach(), out, cut)


def measure_factor(unit: Unit, x: Tensor, h: Tensor) -> Tensor:
    """lambda of h(x) = lambda x, measured.

    Scales, gates and masks multiply each value of x; lambda is their mean, weighted by x^2: the component of h(x)
    along x. A 1x1 convolution turns x, and lambda is its gain, |h(x)| / |x|.
    """
    if _projects(unit):
        return torch.linalg.vector_norm(h) / torch.linalg.vector_norm(x)
    return (h * x).sum() / (x * x).sum()


def predict_factor(unit: Unit, x: Tensor) -> float | None:
    """lambda as it follows from the unit's own numbers, if the shortcut says it.

    A 1x1 with BN behind it leaves maps of the size that BN's weight and bias give; without BN its gain is that for
    white maps, |W| / sqrt(channels).
    """
    said = unit.shortcut.factor() if isinstance(unit.shortcut, ShortcutModule) else None
    return said * _gain(unit, x) if said is not None and _projects(unit) else said


def _projects(unit: Unit) -> bool:
    return hasattr(unit.resize, "conv")


def _gain(unit: Unit, x: Tensor) -> float:
    conv, bn = unit.resize.get_submodule("conv"), getattr(unit.resize, "bn", None)
    before = torch.linalg.vector_norm(x).item()
    if bn is not None:
        return math.sqrt(x.numel() * (bn.weight**2 + bn.bias**2).mean().item()) / before
    filters = conv.get_parameter("weight")
    read = torch.linalg.vector_norm(unit.shared(x)).item()
    return torch.linalg.vector_norm(filters).item() / math.sqrt(filters.shape[1]) * read / before
