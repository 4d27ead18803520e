"""The units that the papers compare, at several depths: every h, every order, every form of F. No torch here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache

from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS
from resnets.spec import Spec
from resnets.unit_spec import KERNELS, ORDERS, parse_shortcut
from resnets.zoo import blocks_of, spec_of

TABLE1 = tuple(str(spec_of(row.network, **dict(row.changes)).shortcut) for row in EXPERIMENTS["table1"].rows)  # type: ignore[union-attr]
DEPTHS = (20, 56, 110, 164)
DEEPEST = 1001  # only bottlenecks, and the kinds of shortcut whose factor multiplies along the depth
DEEPEST_KINDS = ("identity", "scale", "exclusive_gate", "shortcut_gate")


@dataclass(frozen=True)
class Variant:
    """A network for CIFAR whose units are all of one kind."""

    shortcut: str  # as `str(Shortcut)` writes it
    order: str
    kernels: str  # a word of `KERNELS`
    layers: int

    @property
    def spec(self) -> Spec:
        """As the zoo builds the network of these kernels, whatever the depth: bottlenecks project, others pad."""
        base = spec_of({"basic": "resnet110", "bottleneck": "resnet164", "one_layer": "resnet110_1layer"}[self.kernels])
        assert isinstance(base, Spec)
        return dataclasses.replace(
            base,
            name=f"resnet{self.layers}",
            blocks=blocks_of(self.layers, KERNELS[self.kernels]),
            shortcut=parse_shortcut(self.shortcut),
            order=self.order,
        )


@cache
def list_variants(layers: int, kernels: str) -> tuple[Variant, ...]:
    """Every shortcut of v2's Table 1 in every order. A plain net has no addition, so it has one order."""
    deepest = layers == DEEPEST
    return tuple(
        Variant(shortcut, order, kernels, layers)
        for shortcut in TABLE1
        if not deepest or shortcut.split(":")[0] in DEEPEST_KINDS
        for order in ORDERS
        if shortcut != "plain" or order == "original"
    )


def list_groups() -> list[tuple[int, str]]:
    """Each depth with each form of F that it is analysed with."""
    return [*((layers, kernels) for layers in DEPTHS for kernels in KERNELS), (DEEPEST, "bottleneck")]


def variant_of(row: Row) -> Variant | None:
    """The variant that a row of the papers trains; None for other systems, other data and other depths."""
    spec = spec_of(row.network, **dict(row.changes))
    if not isinstance(spec, Spec) or row.data != "cifar10" or row.recipe != "cifar-paper" or row.validation:
        return None
    variant = Variant(str(spec.shortcut), spec.order, spec.block, spec.depth)
    return variant if (spec.depth, spec.block) in list_groups() else None
