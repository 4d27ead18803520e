"""What a network is, as frozen data: no torch here.

A unit of the papers is `y = h(x) + F(x), x' = f(y)`. A `Spec` says what h, F and f are, how many
units stand in each stage, how the dimension-changing units resize their shortcut, and what stands
before the first and after the last unit. `Spec.units()` lists the units, `resnets.nn` builds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from resnets.errors import UserError, one_of, shown
from resnets.options import list_meanings
from resnets.unit_spec import (
    KERNELS,
    ORDERS,
    SHORTCUTS,
    ConvSpec,
    Identity,
    Shortcut,
    UnitSpec,
    check_number,
    check_shortcut,
    parse_shortcut,
    pattern_of,
    unknown_kind,
)

_TINY = 2.0**-126  # the smallest float32
_MOST = 2**31 - 1  # the largest number of units, channels or classes
STEMS = {
    "cifar": "a 3x3 convolution, for small images",
    "imagenet": "a 7x7/2 convolution and 3x3/2 max pooling, for large images",
}
RESIZES = {
    "pad": "option A: every second pixel, zero channels after",
    "pad_both": "option A: every second pixel, zero channels on both sides",
    "pad_pool": "option A: average pooling, zero channels after",
    "project": "option B: a 1x1 convolution",
}
STRIDES = ("1x1", "3x3")
SHARES = {"project": "where the shortcut has a 1x1", "resize": "where the shortcut changes the dimension"}


def _field(text: str, default: Any = dataclasses.MISSING, metavar: str = "", choices: Iterable[str] = ()) -> Any:
    """A field with its help, of which the command line is made."""
    metadata = {"help": text, "group": "network", "metavar": metavar, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Spec:
    """A network of the papers. Every field is a choice; `resnets info` prints them all.

    >>> spec = resnets.spec_of("preresnet110")
    >>> spec.depth, spec.widths, spec.order
    (110, (16, 32, 64), 'full_preact')
    """

    name: str = _field("name of the network", metavar="NAME")
    stem: str = _field(f"first layers: {list_meanings(STEMS)}", metavar="STEM", choices=STEMS)
    blocks: tuple[int, ...] = _field("units in each stage, or one number for all: 18,18,18 or 18", metavar="N,N,N")
    widths: tuple[int, ...] = _field("filters inside the units of each stage: 16,32,64", metavar="N,N,N")
    kernels: tuple[int, ...] = _field(
        f"kernel sizes of F: {list_meanings({n: ','.join(map(str, k)) for n, k in KERNELS.items()})}, or others: 3,1,3",
        KERNELS["basic"],
        metavar="KERNELS",
    )
    order: str = _field(
        "where BN and ReLU stand (Figure 4 of v2): "
        f"{list_meanings({name: order.figure for name, order in ORDERS.items()})}, or a registered one",
        "original",
        metavar="ORDER",
    )
    shortcut: Shortcut = _field(  # noqa: RUF009, a shortcut is frozen
        "h, and how it meets r = F(x): "
        f"{list_meanings({pattern_of(kind): kind.formula for kind in SHORTCUTS.values()})}, or a registered one",
        Identity(),
        metavar="KIND",
    )
    resize: str = _field(
        f"the shortcut where the dimension changes: {list_meanings(RESIZES)}", "pad", metavar="RESIZE", choices=RESIZES
    )
    stride_on: str = _field(
        "which convolution of a bottleneck halves the map: 1x1 (the first) or 3x3", "3x3", metavar="KERNEL",
        choices=STRIDES,
    )  # fmt: skip
    stem_activation: bool = _field("BN and ReLU right after the first convolution", True)
    share_activation: str = _field(
        f"units whose pre-activation is read by both paths: {list_meanings(SHARES)}", "project", metavar="WHERE",
        choices=SHARES,
    )  # fmt: skip
    num_classes: int = _field("number of classes", 10, metavar="N")
    in_channels: int = _field("channels of the images", 3, metavar="N")
    bn_eps: float = _field("added to BN's variance", 1e-5, metavar="X")
    bn_momentum: float = _field("weight of a new batch in BN's running statistics", 0.1, metavar="X")
    stem_width: int = _field("filters of the first convolution; 0: as many as the first stage has", 0, metavar="N")

    def __post_init__(self) -> None:
        for check in (self._check_words, self._check_numbers, self._check_combinations):
            check()

    def _check_words(self) -> None:
        for field in dataclasses.fields(self):
            value, known = getattr(self, field.name), field.metadata["choices"]
            if known and value not in known:
                raise one_of(field.name, value, known)
        if not isinstance(self.order, str) or self.order not in ORDERS:
            raise unknown_kind("order", self.order, ORDERS)
        if not isinstance(self.name, str):
            raise UserError(f"name must be text, not {self.name!r}.")
        if not isinstance(self.stem_activation, bool):
            raise UserError(f"stem_activation must be true or false, not {self.stem_activation!r}.")
        check_shortcut(self.shortcut)

    def _check_numbers(self) -> None:
        for name in ("num_classes", "in_channels"):
            check_whole(name, getattr(self, name))
        for name in ("blocks", "widths", "kernels"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not values:
                raise UserError(f"{name} must be a non-empty tuple of whole numbers, not {values!r}.")
            for value in values:
                check_whole(name, value)
        check_whole("stem_width", self.stem_width, least=0)
        if self.stem_width == self.widths[0]:  # one network has one spec
            object.__setattr__(self, "stem_width", 0)
        if len(self.blocks) != len(self.widths):
            raise UserError(
                f"blocks {self.blocks} name {len(self.blocks)} stages and widths {self.widths} name "
                f"{len(self.widths)}; give one number for each stage in both."
            )
        if any(k % 2 == 0 for k in self.kernels):
            raise UserError(f"kernels must be odd, so that the map keeps its size, not {self.kernels}.")
        check_number("network", "bn_eps", self.bn_eps, 0.0, 1.0)
        if self.bn_eps < _TINY:
            raise UserError(f"network: bn_eps must be above 0, as PyTorch's BN demands, not {self.bn_eps!r}.")
        check_number("network", "bn_momentum", self.bn_momentum, 0.0, 1.0)

    def _check_combinations(self) -> None:
        if self.shortcut.plain and self.order != "original":
            raise UserError(
                f"a plain net has no addition, so order {self.order!r} means nothing for it; leave order at 'original'."
            )
        if not self.stem_activation and not ORDERS[self.order].preactivated:
            raise UserError(
                f"stem_activation=False needs a pre-activation order: with order {self.order!r} nothing would "
                "follow the first convolution; choose full_preact or relu_preact."
            )
        if self.resize != "project" and not (self.shortcut.plain or self.shortcut.projects):
            into = self.stem_channels
            for width in self.widths:
                if (out := width * self.expansion) < into:
                    raise UserError(
                        f"resize {self.resize!r} only adds channels and cannot go from {into} to {out}; "
                        "choose resize='project' or widths that do not shrink."
                    )
                into = out

    def units(self) -> tuple[UnitSpec, ...]:
        """The units in order, layer by layer. The first of each stage but the first halves the map."""
        units: list[UnitSpec] = []
        into = self.stem_channels
        for stage, (count, width) in enumerate(zip(self.blocks, self.widths, strict=True)):
            for place in range(count):
                stride = 2 if stage and place == 0 else 1
                units.append(self._unit(len(units), stage, place, self._convs(into, width, stride)))
                into = units[-1].out
        return tuple(units)

    def _convs(self, into: int, width: int, stride: int) -> tuple[ConvSpec, ...]:
        strided = self.kernels.index(3) if self.stride_on == "3x3" and 3 in self.kernels else 0
        outs = [width] * (len(self.kernels) - 1) + [width * self.expansion]
        strides = (stride if i == strided else 1 for i in range(len(self.kernels)))
        return tuple(map(ConvSpec, [into, *outs], outs, self.kernels, strides))

    def _unit(self, index: int, stage: int, place: int, convs: tuple[ConvSpec, ...]) -> UnitSpec:
        """A unit of these convolutions.

        Where the shortcut of a pre-activation unit has weights, x is activated once, in front of the split, for both
        paths; every other unit leaves its shortcut raw. A stem that activates has done so for the first unit.
        """
        order, shortcut = ORDERS[self.order], self.shortcut
        changes = convs[0].into != convs[-1].out or any(conv.stride > 1 for conv in convs)
        resize = "project" if shortcut.projects else self.resize if changes and not shortcut.plain else ""
        head = () if index == 0 and self.stem_activation else order.before
        shares = resize == "project" or (changes and self.share_activation == "resize")
        return UnitSpec(
            index=index,
            stage=stage,
            place=place,
            shared=head if shares else (),
            convs=convs,
            acts=(() if shares else head, *[("bn", "relu")] * (len(convs) - 1), order.last),
            resize=resize,
            projection_bn=order.projection_bn,
            shortcut=shortcut,
            after=order.after,
            bn_eps=self.bn_eps,
            bn_momentum=self.bn_momentum,
        )

    @property
    def stem_channels(self) -> int:
        """Filters of the first convolution."""
        return self.stem_width or self.widths[0]

    @property
    def expansion(self) -> int:
        """Filters outside a unit for each one inside: 4 in the papers' bottleneck, else 1."""
        return 4 if self.kernels == KERNELS["bottleneck"] else 1

    @property
    def block(self) -> str:
        """The papers' word for the kernels."""
        return next((n for n, k in KERNELS.items() if k == self.kernels), ",".join(map(str, self.kernels)))

    @property
    def depth(self) -> int:
        """Weight layers on the longest path, as the papers count: convolutions of F, first, last."""
        return len(self.kernels) * sum(self.blocks) + 2

    @property
    def halvings(self) -> int:
        """How many layers halve the map."""
        return len(self.blocks) - 1 + (2 if self.stem == "imagenet" else 0)

    @property
    def min_size(self) -> int:
        """The smallest input side of which every halving still finds two pixels to halve."""
        return 2 ** (self.halvings - 1) + 1 if self.halvings else 1

    def check_images(self, shape: Sequence[int]) -> None:
        """Refuse batches that the network cannot read. It is fully convolutional, but cannot halve a single pixel."""
        check_channels(self.name, self.in_channels, shape)
        if min(shape[2:]) < self.min_size:
            raise UserError(
                f"{self.name} halves the map {self.halvings} times and needs images of at least "
                f"{self.min_size}x{self.min_size} pixels, not {shape[2]}x{shape[3]}; enlarge them"
                + (" or create the net with stem='cifar'." if self.stem == "imagenet" else ".")
            )

    @property
    def is_small(self) -> bool:
        """Whether it is for images such as CIFAR's."""
        return self.stem == "cifar"

    @property
    def input_size(self) -> int:
        """The side of the images that the papers feed this kind of network."""
        return 224 if self.stem == "imagenet" else 32

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back.

        `stem_width` came after runs and files had been made, whose names and bytes must not change.
        """
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data.update(shortcut=str(self.shortcut))
        if not self.stem_width:
            del data["stem_width"]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Spec:
        if not isinstance(data, dict):
            raise UserError("a network's description must be a JSON object.")
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise UserError(f"a network's description has no field {', '.join(unknown)}; update resnets to read it.")
        if missing := sorted({"name", "stem", "blocks", "widths"} - set(data)):
            raise UserError(f"a network's description lacks {', '.join(missing)}.")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if isinstance(values.get("shortcut"), str):
            values["shortcut"] = parse_shortcut(values["shortcut"])
        return cls(**values)


def check_channels(name: str, channels: int, shape: Sequence[int]) -> None:
    """Refuse a shape that is not (N, channels, height, width)."""
    if len(shape) != 4 or shape[1] != channels:
        raise UserError(f"{name} reads batches of shape (N, {channels}, height, width), not {tuple(shape)}.")


def check_whole(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, not {shown(value)}.")
    if value > _MOST:
        raise UserError(f"{name} must be at most {_MOST:,}, not {shown(value)}.")
