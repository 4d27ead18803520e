"""One batch through a network and back, unit by unit, reduced to numbers on the way.

Of the maps x_0 ... x_L only every sqrt(L)th is kept; on the way back the units between two of them are run again,
so that 1001 layers need the memory of a few dozen maps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import functional

from resnets.analysis.unit_terms import Parts, measure_factor, predict_factor, run, take_apart
from resnets.nn import ResNet, Unit
from resnets.nn.network import check_input

Number = float | None  # None where it is not defined, or not finite


class OfMap(NamedTuple):
    """Numbers of x_l. L is the last map of the same size."""

    rms: Number
    variance: Number
    gradient: Number  # |dE/dx_l|
    cosine: Number  # of dE/dx_l with dE/dx_L
    missed: Number  # |x_L - x_l - sum of F^| / |x_L|: by how much equation (4) fails


class OfUnit(NamedTuple):
    """Numbers of the unit between x_l and x_{l+1}."""

    share: Number  # |F^(x_l)| / |x_{l+1}|
    truncated: Number  # share of values that the ReLU of f cuts; None without one
    factor: Number  # lambda of h, measured and predicted; None where the unit changes the size of the map
    predicted: Number


class Walk(NamedTuple):
    loss: Number
    sizes: list[torch.Size]  # of x_0 ... x_L
    maps: list[OfMap]
    units: list[OfUnit]


def walk(net: ResNet, images: Tensor, labels: Tensor, seed: int) -> Walk:
    """Forward, then back from the loss, the mean cross-entropy of the batch."""
    units: list[Unit] = list(net.units)  # type: ignore[arg-type]
    step = math.isqrt(len(units) - 1) + 1
    kept, sizes = [], []
    with torch.no_grad():
        x = net.stem(check_input(net.spec, images))
        for i, unit in enumerate(units):
            if i % step == 0:
                kept.append(x)
            sizes.append(x.shape)
            x = run(unit, x, seed + i)
    sizes.append(x.shape)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        loss = functional.cross_entropy(net.forward_head(net.last(leaf)), labels)
        (gradient,) = torch.autograd.grad(loss, leaf)
    end = _End(x, gradient)
    of_maps, of_units = [end.measure(x, gradient)], []
    while kept:
        first = (len(kept) - 1) * step
        for i, x in _rerun(units[first : first + step], kept.pop(), first, seed):
            parts, gradient = _back(units[i], x, seed + i, gradient)
            of_units.append(measure(units[i], x, parts))
            if sizes[i] == sizes[i + 1]:
                end.total += parts.added
            else:
                end = _End(x, gradient)
            of_maps.append(end.measure(x, gradient))
    return Walk(number(loss), sizes, of_maps[::-1], of_units[::-1])


def _rerun(units: list[Unit], x: Tensor, first: int, seed: int) -> Iterator[tuple[int, Tensor]]:
    """What each of some units in a row reads, the last first, with its index in the network."""
    maps = [x]
    with torch.no_grad():
        for i, unit in enumerate(units[:-1], first):
            maps.append(run(unit, maps[-1], seed + i))
    while maps:
        yield first + len(maps) - 1, maps.pop()


def _back(unit: Unit, x: Tensor, seed: int, gradient: Tensor) -> tuple[Parts, Tensor]:
    """What the unit does with x, and the gradient in front of it from the one behind it."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        parts = take_apart(unit, leaf, seed)
        (before,) = torch.autograd.grad(parts.out, leaf, gradient)
    return parts._replace(out=parts.out.detach()), before


@dataclass
class _End:
    """x_L, its gradient, and the sum of F^ from x_l to it, which grows on the way back."""

    x: Tensor
    gradient: Tensor

    def __post_init__(self) -> None:
        self.total = torch.zeros_like(self.x)

    def measure(self, x: Tensor, gradient: Tensor) -> OfMap:
        size = vector_norm(gradient)
        along = (gradient * self.gradient).sum() / vector_norm(self.gradient)
        missed = vector_norm(self.x - x - self.total) / vector_norm(self.x)
        return OfMap(rms(x), number(x.var(correction=0)), number(size), number(along / size), number(missed))


@torch.no_grad()
def measure(unit: Unit, x: Tensor, parts: Parts) -> OfUnit:
    """What a unit that read x did."""
    keeps_size = x.shape == parts.out.shape
    return OfUnit(
        number(vector_norm(parts.added) / vector_norm(parts.out)),
        None if parts.cut is None else parts.cut.float().mean().item(),
        number(measure_factor(unit, x, parts.h)) if keeps_size else None,
        predict_factor(unit, x) if keeps_size else None,
    )


def rms(x: Tensor) -> Number:
    return number(vector_norm(x) / math.sqrt(x.numel()))


def number(value: Tensor) -> Number:
    found = value.item()
    return found if math.isfinite(found) else None
