"""How signals travel through a network, unit by unit: what v2 says about equations (4), (5), (7) and (8), measured.

The equations hold between maps of one size, so L is everywhere the last map of the size that x_l has, and a unit
that changes the size has no lambda. docs/analysis.md says what each number is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from resnets.analysis.forward_backward import Number, OfMap, OfUnit, Walk, measure, rms, walk
from resnets.analysis.preserve_state import preserve_state
from resnets.analysis.unit_terms import require_known_units, take_apart
from resnets.errors import UserError
from resnets.nn import ResNet
from resnets.nn.network import check_input
from resnets.spec import Spec

Numbers = tuple[Number, ...]


@dataclass(frozen=True)
class Propagation:
    """Numbers of the maps x_0 ... x_L and of the units between them: means over batches."""

    spec: Spec
    statistics: str  # of BN: "batch" as in training, or "running" as in testing
    images: int
    batch: int
    loss: Number
    spans: tuple[tuple[int, int], ...]  # the first and the last map of each size
    # of maps: see OfMap
    rms: Numbers
    variance: Numbers
    gradient: Numbers
    cosine: Numbers
    missed: Numbers
    # of units: see OfUnit
    share: Numbers
    truncated: Numbers
    factor: Numbers
    predicted: Numbers

    @property
    def growth(self) -> Numbers:
        """rms of x_{l+1} / rms of x_l, for each unit."""
        pairs = zip(self.rms, self.rms[1:], strict=False)
        return tuple(None if not before or after is None else after / before for before, after in pairs)

    @property
    def product(self) -> Numbers:
        """The product of the measured lambdas from x_l to x_L, for each map: the factor of equations (7) and (8)."""
        return products(self.factor, self.spans)

    @property
    def predicted_product(self) -> Numbers:
        return products(self.predicted, self.spans)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: `maps` has L + 1 numbers of each kind and `units` L."""
        about = {name: getattr(self, name) for name in ("statistics", "images", "batch", "loss")}
        return {
            "name": self.spec.name,
            "network": self.spec.to_dict(),
            **about,
            "spans": [list(span) for span in self.spans],
            "maps": {name: list(getattr(self, name)) for name in (*OfMap._fields, "product", "predicted_product")},
            "units": {name: list(getattr(self, name)) for name in (*OfUnit._fields, "growth")},
        }


def propagation(
    net: ResNet,
    images: Tensor,
    labels: Tensor,
    *,
    batch: int | None = None,
    statistics: str = "batch",
    seed: int = 0,
) -> Propagation:
    """Send normalised images through `net` and their gradients back, `batch` at a time (all at once if not said).

    By default BN normalises by the batch and dropout drops, as in training; with `statistics="running"` both are
    as in testing. `seed` decides what is dropped. Neither the weights nor their gradients nor BN's statistics nor
    the modes of `net` change, and images that do not fill a batch are left out.
    """
    batch = len(images) if batch is None else batch
    _check(net, images, labels, batch, statistics)
    place = net.classifier.weight
    walks = []
    with preserve_state(net, training=statistics == "batch"):
        for i in range(len(images) // batch):
            part = slice(i * batch, (i + 1) * batch)
            x, y = images[part].to(place.device, place.dtype), labels[part].to(place.device)
            walks.append(walk(net, x, y, seed + i * len(net.units)))
    return Propagation(
        spec=net.spec,
        statistics=statistics,
        images=len(walks) * batch,
        batch=batch,
        loss=mean(w.loss for w in walks),
        spans=spans(walks[0].sizes),
        **_columns(walks),
    )


def summarize_signal(net: ResNet, images: Tensor, *, seed: int = 0) -> dict[str, list[Number]]:
    """What one forward pass tells, a number for each size of the maps: small enough for a line of a log.

    `rms` of the last map, `growth` of the signal from the first map to it, the mean `share` of F^ and the mean
    share `truncated` by the ReLU of f, the `product` of the lambdas. BN normalises by the batch. `net` stays as it
    is, as in `propagation`.
    """
    require_known_units(net)
    place = net.classifier.weight
    sizes, signal, units = [], [], []
    with preserve_state(net, training=True), torch.no_grad():
        x = net.stem(check_input(net.spec, images.to(place.device, place.dtype)))
        for i, unit in enumerate(net.units):
            sizes.append(x.shape)
            signal.append(rms(x))
            parts = take_apart(unit, x, seed + i)  # type: ignore[arg-type]
            units.append(measure(unit, x, parts))  # type: ignore[arg-type]
            x = parts.out
        sizes.append(x.shape)
        signal.append(rms(x))
    found: dict[str, list[Number]] = {name: [] for name in ("rms", "growth", "share", "truncated", "product")}
    for first, last in spans(sizes):
        inside = units[first:last]
        start, end = signal[first], signal[last]
        found["rms"].append(end)
        found["growth"].append(None if not start or end is None else end / start)
        found["share"].append(mean(unit.share for unit in inside))
        found["truncated"].append(mean(unit.truncated for unit in inside))
        found["product"].append(product([unit.factor for unit in inside]))
    return found


def spans(sizes: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The first and the last of each run of equal sizes."""
    starts = [i for i, size in enumerate(sizes) if i == 0 or size != sizes[i - 1]]
    return tuple((first, after - 1) for first, after in zip(starts, [*starts[1:], len(sizes)], strict=True))


def products(factors: Numbers, spans: Iterable[tuple[int, int]]) -> Numbers:
    """For each map the product of the factors of the units from it to the last map of its size."""
    return tuple(product(factors[i:last]) for first, last in spans for i in range(first, last + 1))


def product(factors: Sequence[Number]) -> Number:
    return None if None in factors else math.prod((f for f in factors if f is not None), start=1.0)


def mean(values: Iterable[Number]) -> Number:
    """The mean, or None where one of the values is, or there is none."""
    found = list(values)
    return None if not found or None in found else math.fsum(v for v in found if v is not None) / len(found)


def _columns(walks: Sequence[Walk]) -> dict[str, Any]:
    """A tuple for each number of `OfMap` and `OfUnit`, averaged over the walks."""
    columns: dict[str, Any] = {}
    for kind, fields in (("maps", OfMap._fields), ("units", OfUnit._fields)):
        for name in fields:
            each = zip(*([getattr(row, name) for row in getattr(w, kind)] for w in walks), strict=True)
            columns[name] = tuple(map(mean, each))
    return columns


def _check(net: ResNet, images: Tensor, labels: Tensor, batch: int, statistics: str) -> None:
    require_known_units(net)
    if statistics not in ("batch", "running"):
        raise UserError(f"statistics must be batch or running, not {statistics!r}.")
    if labels.shape != images.shape[:1]:
        raise UserError(f"each image needs a label: {len(images)} images came with labels of {tuple(labels.shape)}.")
    if not 1 <= batch <= len(images):
        raise UserError(f"batch must be between 1 and the number of images, {len(images)}, not {batch}.")
    if labels.min() < 0 or labels.max() >= net.spec.num_classes:
        raise UserError(f"labels must lie between 0 and {net.spec.num_classes - 1}, as {net.spec.name} tells them.")
