"""Describe a network: its layers as in the papers' tables, its cost, and the value of every switch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from resnets.analysis.complexity import Complexity, Stage, complexity
from resnets.describe import drawing
from resnets.describe.drawing import Kind, Layer
from resnets.errors import UserError
from resnets.spec import RESIZES, SHARES, STEMS, Spec
from resnets.unit_spec import ORDERS, Order
from resnets.zoo import NETWORKS

# A foreign file may claim any network. Time grows with the units, and torch counts a tensor's bytes in 63 bits.
MOST_UNITS, MOST_HALVINGS, MOST_NUMBERS = 10_000, 30, 2**60


@dataclass(frozen=True)
class Row:
    """A line of the papers' architecture table."""

    name: str
    output: tuple[int, int, int]  # channels, height, width
    layers: str
    stride: str  # the convolution that halves the map
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Switch:
    """A choice that the papers leave open, or that re-implementations make differently."""

    name: str
    value: str | bool | float
    meaning: str


@dataclass(frozen=True)
class Description:
    spec: Spec
    cost: Complexity
    rows: tuple[Row, ...]
    switches: tuple[Switch, ...]
    kinds: tuple[Kind, ...]

    @property
    def changed(self) -> dict[str, Any]:
        """The fields in which the spec differs from the network whose name it bears."""
        if self.spec.name not in NETWORKS:
            return {}
        original = NETWORKS[self.spec.name].to_dict()
        return {field: value for field, value in self.spec.to_dict().items() if value != original.get(field)}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        spec = self.spec
        return {
            "name": spec.name,
            "changed": self.changed,
            "layers": spec.depth,
            "block": spec.block,
            "units": sum(spec.blocks),
            "parameters": self.cost.parameters,
            "multiply_adds": self.cost.multiply_adds,
            "input": list(self.cost.input),
            "minimum_size": spec.min_size,
            "architecture": [dataclasses.asdict(row) for row in self.rows],
            "switches": {s.name: {"value": s.value, "meaning": s.meaning} for s in self.switches},
            "kinds": [{"units": list(kind.units), **kind.picture.to_dict()} for kind in self.kinds],
            "spec": spec.to_dict(),
        }


def describe(spec: Spec, size: int | tuple[int, int] | None = None) -> Description:
    """Describe a network on images of `size` (by default the papers' size)."""
    if _too_large(spec, size):
        raise UserError(f"{spec.name} is too large to describe.")
    cost, kinds = complexity(spec, size), describe_units(spec)
    return Description(spec, cost, tuple(_rows(spec, cost)), tuple(_switches(spec, kinds)), kinds)


def _too_large(spec: Spec, size: int | tuple[int, int] | None) -> bool:
    height, width = size if isinstance(size, tuple) else (size or spec.input_size,) * 2
    channels = max(spec.in_channels, spec.num_classes, spec.stem_channels, max(spec.widths) * spec.expansion)
    kernel = max(7, *spec.kernels)
    numbers = channels * max(channels * kernel**2, (height + kernel) * (width + kernel))  # of a weight, of a map
    return sum(spec.blocks) > MOST_UNITS or spec.halvings > MOST_HALVINGS or numbers > MOST_NUMBERS


def describe_units(spec: Spec) -> tuple[Kind, ...]:
    """The kinds of units in a network, for `resnets.describe.drawing.draw_kinds`."""
    return tuple(drawing.kinds(spec.units()))


# --- the architecture table -------------------------------------------------------------------


def _rows(spec: Spec, cost: Complexity) -> Iterator[Row]:
    stem, *stages, head = cost.stages
    yield _row("conv1", _join(_stem(spec)), "", stem)
    firsts = (unit for unit in spec.units() if unit.place == 0)
    for stage, first in zip(stages, firsts, strict=True):
        strided = [f"conv{i} of unit {first.index}" for i, conv in enumerate(first.convs, 1) if conv.stride > 1]
        convs = _join(drawing.conv_layer(conv._replace(stride=1)) for conv in first.convs)
        yield _row(stage.name, f"[{convs}] x {stage.units}", ", ".join(strided), stage)
    yield _row("head", _join((*_end(spec), Layer("average pool"), Layer("fc", spec.num_classes))), "", head)


def _row(name: str, layers: str, stride: str, part: Stage) -> Row:
    return Row(name, part.output, layers, stride, part.parameters, part.multiply_adds)


def _join(layers: Iterable[Layer]) -> str:
    return "; ".join(map(str, layers))


def _stem(spec: Spec) -> Iterator[Layer]:
    large = spec.stem == "imagenet"
    yield Layer("7x7", spec.stem_channels, 2) if large else Layer("3x3", spec.stem_channels)
    if spec.stem_activation:
        yield from drawing.activation(("bn", "relu"))
    if large:
        yield Layer("3x3 max pool", stride=2)


def _end(spec: Spec) -> tuple[Layer, ...]:
    return drawing.activation(ORDERS[spec.order].before)


# --- the switches -----------------------------------------------------------------------------

_MEANINGS: dict[str, dict[Any, str]] = {
    "stem": STEMS,
    "stem_activation": {
        True: "BN, ReLU right after the first convolution",
        False: "the first convolution is bare; unit 0 activates",
    },
    "resize": RESIZES,
    "stride_on": {
        "1x1": "a unit halves the map in its first convolution",
        "3x3": "a unit halves the map in its first 3x3 convolution",
    },
    "share_activation": {word: f"{where}, both paths read the activated x" for word, where in SHARES.items()},
    "projection_bn": {
        True: "BN follows a 1x1 on the shortcut",
        False: "a 1x1 on the shortcut stays bare",
    },
}


def _switches(spec: Spec, kinds: tuple[Kind, ...]) -> Iterator[Switch]:
    order, end = ORDERS[spec.order], _end(spec)

    def look_up(name: str, value: str | bool, idle: str = "") -> Switch:
        return Switch(name, value, _MEANINGS[name][value] + (f" ({idle})" if idle else ""))

    def field(name: str) -> Switch:
        return look_up(name, getattr(spec, name), "the same net with any value" if _idle(spec, name, kinds) else "")

    yield look_up("stem", spec.stem)
    yield look_up("stem_activation", spec.stem_activation)
    yield Switch("order", spec.order, _order(order))
    yield Switch("shortcut", str(spec.shortcut), spec.shortcut.meaning)
    yield field("resize")
    projections = any(layer.name == "1x1" for kind in kinds for layer in kind.picture.shortcut)
    yield look_up("projection_bn", order.projection_bn, "" if projections else "none in this net")
    yield field("stride_on")
    yield field("share_activation")
    yield Switch(
        "end_activation",
        ", ".join(map(str, end)) or "none",
        "what a next unit would have applied, before the average pool" if end else "f of the last unit ends the net",
    )
    yield Switch("bn_eps", spec.bn_eps, "added to BN's variance")
    yield Switch("bn_momentum", spec.bn_momentum, "weight of a new batch in BN's running statistics")
    yield Switch(
        "init",
        "He, fan-out",
        "normal, std sqrt(2 / (k k filters)); BN 1, 0; fc uniform +-1/sqrt(inputs), bias 0",
    )


def _idle(spec: Spec, field: str, kinds: tuple[Kind, ...]) -> bool:
    """Whether every other value of the field would make the same units."""
    for other in _MEANINGS[field]:
        try:
            same = describe_units(dataclasses.replace(spec, **{field: other})) == kinds
        except UserError:  # the other value is impossible here, so this one matters
            return False
        if not same:
            return False
    return True


def _order(order: Order) -> str:
    """`BN after the last convolution of F; ReLU as f (v2 Figure 4(a))`."""
    places = (
        (order.before, "before the first convolution of F"),
        (order.last, "after the last convolution of F"),
        (order.after, "as f"),
    )
    found = (f"{', '.join(map(str, drawing.activation(words)))} {place}" for words, place in places if words)
    return ("; ".join(found) or "none at the ends of F") + (f" (v2 Figure {order.figure})" if order.figure else "")
