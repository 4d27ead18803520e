"""What a network is, as frozen data: no torch here.

A unit of the papers is `y = h(x) + F(x), x' = f(y)`. A `Spec` says what h, F and f are, how many
units stand in each stage, how the dimension-changing units resize their shortcut, and what stands
before the first and after the last unit. `resnets.nn` builds what a spec says.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from resnets.errors import UserError, one_of, shown

# --- F and f: where the activations of a unit stand -------------------------------------------


@dataclass(frozen=True)
class Order:
    """Where BN and ReLU stand in a unit. BN-ReLU always stands between its convolutions."""

    before: tuple[str, ...]  # before the first convolution of F
    last: tuple[str, ...]  # after the last convolution of F
    after: tuple[str, ...]  # after the addition: f
    figure: str  # of the v2 paper

    @property
    def preactivated(self) -> bool:
        return bool(self.before)

    @property
    def projection_bn(self) -> bool:
        """BN follows a 1x1 on the shortcut, unless the order normalises in front of weights."""
        return "bn" not in self.before


ORDERS = {
    "original": Order((), ("bn",), ("relu",), "4(a)"),
    "bn_after_add": Order((), (), ("bn", "relu"), "4(b)"),
    "relu_before_add": Order((), ("bn", "relu"), (), "4(c)"),
    "relu_preact": Order(("relu",), ("bn",), (), "4(d)"),
    "full_preact": Order(("bn", "relu"), (), (), "4(e)"),
}

KERNELS = {"basic": (3, 3), "bottleneck": (1, 3, 1), "one_layer": (3,)}

# --- h: what stands on the shortcut -----------------------------------------------------------


def _number(owner: str, name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        bounds = "be a finite number" if math.isinf(high) else f"be between {low:g} and {high:g}"
        raise UserError(f"{owner}: {name} must {bounds}, not {value!r}.")


_HUGE = 3.4e38  # the largest float32
_TINY = 2.0**-126  # the smallest


class Shortcut:
    """h of a unit, and how its result meets r = F(x). Each kind is a final class below."""

    kind: ClassVar[str]
    formula: ClassVar[str]

    def __str__(self) -> str:
        values = [getattr(self, f.name) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return ":".join([self.kind, *map(_word, values)])


def _word(value: float | bool) -> str:
    """`6` rather than `6.0`, and never fewer digits than it takes to read the same number back."""
    short = f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else short if float(short) == value else repr(value)


@dataclass(frozen=True)
class Identity(Shortcut):
    """x + r, the shortcut that the v2 paper argues for."""

    kind = "identity"
    formula = "x + r"


@dataclass(frozen=True)
class Scale(Shortcut):
    """a x + b r with constant a = `shortcut`, b = `residual` (v2 Fig. 2b)."""

    shortcut: float = 0.5
    residual: float = 1.0
    kind = "scale"
    formula = "a x + b r"

    def __post_init__(self) -> None:
        _number("Scale", "shortcut", self.shortcut, -_HUGE, _HUGE)
        _number("Scale", "residual", self.residual, -_HUGE, _HUGE)


@dataclass(frozen=True)
class ExclusiveGate(Shortcut):
    """(1 - g(x)) x + g(x) r with g(x) = sigmoid(W_g x + b_g), b_g starting at `bias` (v2 Fig. 2c)."""

    bias: float = -6.0
    kind = "exclusive_gate"
    formula = "(1 - g(x)) x + g(x) r"

    def __post_init__(self) -> None:
        _number("ExclusiveGate", "bias", self.bias, -_HUGE, _HUGE)


@dataclass(frozen=True)
class ShortcutGate(Shortcut):
    """(1 - g(x)) x + r with g(x) = sigmoid(W_g x + b_g), b_g starting at `bias` (v2 Fig. 2d)."""

    bias: float = -6.0
    kind = "shortcut_gate"
    formula = "(1 - g(x)) x + r"

    def __post_init__(self) -> None:
        _number("ShortcutGate", "bias", self.bias, -_HUGE, _HUGE)


@dataclass(frozen=True)
class Conv1x1(Shortcut):
    """W x + r in every unit (v2 Fig. 2e; option C of v1)."""

    kind = "conv1x1"
    formula = "W x + r"


@dataclass(frozen=True)
class Dropout(Shortcut):
    """drop(x) + r (v2 Fig. 2f): a 0/1 mask in training, its expectation 1 - p in testing.

    `rescale` divides the mask by 1 - p in training instead, as most libraries do; the v2 paper's
    analysis (a scale of expectation 0.5) needs the form without.
    """

    p: float = 0.5
    rescale: bool = False
    kind = "dropout"
    formula = "drop(x) + r"

    def __post_init__(self) -> None:
        _number("Dropout", "p", self.p, 0.0, 1.0)
        if self.rescale and self.p == 1:
            raise UserError("Dropout: rescale=True cannot divide by 1 - p = 0; choose p below 1.")


@dataclass(frozen=True)
class Plain(Shortcut):
    """r alone: no shortcut, the plain counterpart of a residual net."""

    kind = "plain"
    formula = "r"


SHORTCUTS: dict[str, type[Shortcut]] = {
    s.kind: s for s in (Identity, Scale, ExclusiveGate, ShortcutGate, Conv1x1, Dropout, Plain)
}


def parse_shortcut(text: str) -> Shortcut:
    """`exclusive_gate:-6`, `scale:0.5:1`, `dropout:0.5:true`: a kind and its values in order."""
    kind, *words = text.split(":")
    if kind not in SHORTCUTS:
        raise one_of("shortcut", kind, SHORTCUTS)
    fields = dataclasses.fields(SHORTCUTS[kind])  # type: ignore[arg-type]
    if len(words) > len(fields):
        takes = ":".join([kind, *(f.name.upper() for f in fields)])
        raise UserError(f"shortcut {text!r} has too many values; write {takes}.")
    values: dict[str, Any] = {}
    for field, word in zip(fields, words, strict=False):
        try:
            values[field.name] = {"true": True, "false": False}[word.lower()] if field.type == "bool" else float(word)
        except (KeyError, ValueError):
            wanted = "true or false" if field.type == "bool" else "a number"
            raise UserError(f"shortcut {text!r}: {field.name} must be {wanted}, not {word!r}.") from None
    return SHORTCUTS[kind](**values)


# --- the network ------------------------------------------------------------------------------

_MOST = 2**31 - 1  # of anything that is counted: beyond it neither torch nor a machine goes
STEMS = ("cifar", "imagenet")
RESIZES = {
    "pad": "option A: every second pixel, zero channels after",
    "pad_both": "option A: every second pixel, zero channels on both sides",
    "pad_pool": "option A: average pooling, zero channels after",
    "project": "option B: a 1x1 convolution",
}
STRIDES = ("1x1", "3x3")
SHARES = ("project", "resize")


@dataclass(frozen=True)
class Spec:
    """A network of the papers. Every field is a choice; `resnets info` prints them all."""

    name: str
    stem: str  # "cifar": 3x3; "imagenet": 7x7/2 and 3x3/2 max pooling
    blocks: tuple[int, ...]  # units in each stage
    widths: tuple[int, ...]  # filters inside the units of each stage
    kernels: tuple[int, ...] = KERNELS["basic"]
    order: str = "original"
    shortcut: Shortcut = dataclasses.field(default_factory=Identity)
    resize: str = "pad"  # of the shortcut where the dimension changes
    stride_on: str = "3x3"  # where a bottleneck that halves the map has its stride
    stem_activation: bool = True  # BN-ReLU right after the first convolution
    share_activation: str = "project"  # pre-activation is shared by both paths at projections, or at every resize
    num_classes: int = 10
    in_channels: int = 3
    bn_eps: float = 1e-5
    bn_momentum: float = 0.1

    def __post_init__(self) -> None:
        for check in (self._check_words, self._check_numbers, self._check_combinations):
            check()

    def _check_words(self) -> None:
        for what, value, known in (
            ("stem", self.stem, STEMS),
            ("order", self.order, ORDERS),
            ("resize", self.resize, RESIZES),
            ("stride_on", self.stride_on, STRIDES),
            ("share_activation", self.share_activation, SHARES),
        ):
            if not isinstance(value, str) or value not in known:
                raise one_of(what, value, known)
        if not isinstance(self.name, str):
            raise UserError(f"name must be text, not {self.name!r}.")
        if not isinstance(self.stem_activation, bool):
            raise UserError(f"stem_activation must be true or false, not {self.stem_activation!r}.")
        if type(self.shortcut) not in SHORTCUTS.values():
            raise UserError(f"shortcut must be one of {', '.join(SHORTCUTS)}, not {self.shortcut!r}.")

    def _check_numbers(self) -> None:
        for name in ("num_classes", "in_channels"):
            _whole(name, getattr(self, name))
        for name in ("blocks", "widths", "kernels"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not values:
                raise UserError(f"{name} must be a non-empty tuple of whole numbers, not {values!r}.")
            for value in values:
                _whole(name, value)
        if len(self.blocks) != len(self.widths):
            raise UserError(
                f"blocks {self.blocks} name {len(self.blocks)} stages and widths {self.widths} name "
                f"{len(self.widths)}; give one number for each stage in both."
            )
        if any(k % 2 == 0 for k in self.kernels):
            raise UserError(f"kernels must be odd, so that the map keeps its size, not {self.kernels}.")
        _number("network", "bn_eps", self.bn_eps, 0.0, 1.0)
        if self.bn_eps < _TINY:
            raise UserError(f"network: bn_eps must be above 0, as PyTorch's BN demands, not {self.bn_eps!r}.")
        _number("network", "bn_momentum", self.bn_momentum, 0.0, 1.0)

    def _check_combinations(self) -> None:
        if isinstance(self.shortcut, Plain) and self.order != "original":
            raise UserError(
                f"a plain net has no addition, so order {self.order!r} means nothing for it; leave order at 'original'."
            )
        if not self.stem_activation and not ORDERS[self.order].preactivated:
            raise UserError(
                f"stem_activation=False needs a pre-activation order: with order {self.order!r} nothing would "
                "follow the first convolution; choose full_preact or relu_preact."
            )
        if self.resize != "project" and self.shortcut.kind not in ("plain", "conv1x1"):
            into = self.widths[0]
            for width in self.widths:
                if (out := width * self.expansion) < into:
                    raise UserError(
                        f"resize {self.resize!r} only adds channels and cannot go from {into} to {out}; "
                        "choose resize='project' or widths that do not shrink."
                    )
                into = out

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

    @property
    def input_size(self) -> int:
        """The side of the images that the papers feed this kind of network."""
        return 224 if self.stem == "imagenet" else 32

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data.update(shortcut=str(self.shortcut))
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


def _whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name} must be a whole number of at least 1, not {shown(value)}.")
    if value > _MOST:
        raise UserError(f"{name} must be at most {_MOST:,}, not {shown(value)}.")
