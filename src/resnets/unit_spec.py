"""What a unit of a network is, as frozen data: y = h(x) + F(x), x' = f(y). No torch here.

An `Order` says where BN and ReLU stand, a `Shortcut` what h is and how it meets r = F(x). A `UnitSpec` is one unit,
layer by layer, as `Spec.units()` lists them; whatever builds, runs, draws, exports or analyses units reads it.
`register_order` and `register_shortcut` add kinds of your own.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from resnets.errors import UserError, one_of, shown

if TYPE_CHECKING:
    from torch import nn

# --- F and f: where the activations of a unit stand -------------------------------------------

Words = tuple[str, ...]  # of "bn" and "relu"


@dataclass(frozen=True)
class Order:
    """Where BN and ReLU stand in a unit. BN-ReLU always stands between its convolutions."""

    before: Words  # before the first convolution of F
    last: Words  # after the last convolution of F
    after: Words  # after the addition: f
    figure: str = ""  # of the v2 paper

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


def register_order(
    name: str,
    *,
    before: Collection[str] = (),
    last: Collection[str] = (),
    after: Collection[str] = (),
    figure: str = "",
) -> None:
    """Add an order of your own: where BN and ReLU stand.

    >>> resnets.register_order("bn_first", before=("bn",), after=("relu",))
    >>> net = resnets.create("resnet20", order="bn_first")
    """
    _check_name(f"order {name!r}", name)
    for place, words in (("before", before), ("last", last), ("after", after)):
        if isinstance(words, str) or not set(words) <= {"bn", "relu"} or len(set(words)) < len(words):
            raise UserError(f"order {name!r}: {place} must hold 'bn' and 'relu', each at most once, not {words!r}.")
    order = Order(tuple(before), tuple(last), tuple(after), figure)
    if ORDERS.setdefault(name, order) != order:
        raise UserError(f"there is already another order {name!r}; choose another name.")


def unknown_kind(what: str, value: object, known: Collection[str]) -> UserError:
    """The error for an order or a shortcut that is not registered."""
    function = f"resnets.register_{what}"
    return UserError(f"{one_of(what, value, known)} If it is your own, import the file that calls {function} first.")


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]{0,63}", name):
        raise UserError(f"{what} must have a name of small letters, digits and _, not {shown(name)}.")


# --- h: what stands on the shortcut -----------------------------------------------------------

_HUGE = 3.4e38  # the largest float32


class Drawing(NamedTuple):
    """How `resnets info` draws a shortcut. A layer named by its kernel (`1x1`) has a filter for each channel of x."""

    layers: Words = ()  # that x passes
    gate: Words = ()  # that read x beside them
    factors: tuple[str, str] = ("", "")  # of x and of r at the addition; "" is 1


class Shortcut:
    """h of a unit, and how its result meets r = F(x).

    Each kind is a frozen dataclass whose fields are numbers or true or false. One of your own has a `kind`, a
    `formula`, a default for each field and `module`; the rest need not be said. See docs/shortcuts.md.

    >>> resnets.spec_of("resnet110", shortcut="exclusive_gate:-6").shortcut.formula
    '(1 - g(x)) x + g(x) r'
    """

    kind: ClassVar[str]  # its name in specs, files and options
    formula: ClassVar[str]
    plain: ClassVar[bool] = False  # r alone: nothing brings x to the addition
    projects: ClassVar[bool] = False  # x passes a 1x1 convolution in every unit
    random: ClassVar[bool] = True  # its module may draw random numbers, or computes with the whole batch
    initial: ClassVar[Words] = ()  # fields that only say where weights begin: nets that differ in them compute the same

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value, wanted = getattr(self, field.name), _type(field)
            if wanted == "float":
                check_number(type(self).__name__, field.name, value, -_HUGE, _HUGE)
            elif wanted in _NUMBERS and type(value).__name__ != wanted:
                raise UserError(f"{type(self).__name__}: {field.name} must be {_NUMBERS[wanted][0]}, not {value!r}.")

    def module(self, channels: int) -> nn.Module:
        """A torch module whose forward takes x, already of the shape of r, and r. See `resnets.nn.ShortcutModule`."""
        raise NotImplementedError

    @property
    def is_custom(self) -> bool:
        """Whether a user registered this kind, so that only its own module says what it computes."""
        return type(self).module is not Shortcut.module

    @property
    def meaning(self) -> str:
        """The formula in words."""
        return f"{self.formula}, r = F(x)"

    @property
    def drawing(self) -> Drawing:
        return Drawing(layers=(str(self),))

    def __str__(self) -> str:
        return ":".join([self.kind, *(_word(getattr(self, field.name)) for field in fields_of(type(self)))])


def fields_of(kind: type[Shortcut]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)  # type: ignore[arg-type]  # each kind is a dataclass


def pattern_of(kind: type[Shortcut]) -> str:
    """`scale:SHORTCUT:RESIDUAL`."""
    return ":".join([kind.kind, *(field.name.upper() for field in fields_of(kind))])


def _word(value: float | bool) -> str:
    """`6` rather than `6.0`, and never fewer digits than it takes to read the same number back."""
    short = f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else short if float(short) == value else repr(value)


def check_number(owner: str, name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        bounds = "be a finite number" if math.isinf(high) else f"be between {low:g} and {high:g}"
        raise UserError(f"{owner}: {name} must {bounds}, not {value!r}.")


_NUMBERS: dict[str, tuple[str, Callable[[str], float | bool]]] = {  # what a field may be, and how its text is read
    "bool": ("true or false", lambda word: {"true": True, "false": False}[word.lower()]),
    "int": ("a whole number", lambda word: int(word) if word.lstrip("-").isdigit() else _whole(float(word))),
    "float": ("a number", float),
}
SHORTCUTS: dict[str, type[Shortcut]] = {}
Kind = TypeVar("Kind", bound=type[Shortcut])


def register_shortcut(kind: Kind) -> Kind:
    """Make a subclass of `Shortcut` known, as a decorator; it becomes a frozen dataclass if it is none.

    >>> import torch
    >>> @resnets.register_shortcut
    ... class Half(resnets.Shortcut):
    ...     kind, formula = "half", "0.5 x + r"
    ...     def module(self, channels):
    ...         return HalfModule()
    >>> class HalfModule(torch.nn.Module):
    ...     def forward(self, x, r):
    ...         return 0.5 * x + r
    >>> net = resnets.create("resnet20", shortcut="half")
    """
    if not (isinstance(kind, type) and issubclass(kind, Shortcut)):
        raise UserError(f"register_shortcut takes a subclass of resnets.Shortcut, not {shown(kind)}.")
    _check_name(f"shortcut {kind.__name__}", getattr(kind, "kind", None))
    what, before = f"shortcut {kind.kind!r}", SHORTCUTS.get(kind.kind)
    try:
        if "__dataclass_fields__" not in vars(kind):
            dataclass(frozen=True)(kind)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} cannot be a frozen dataclass: {error}.") from error
    if not isinstance(getattr(kind, "formula", None), str):
        raise UserError(f"{what} needs a formula, as in formula = 'w x + r'.")
    if not vars(kind)["__dataclass_params__"].frozen:
        raise UserError(f"{what} must be a frozen dataclass: write @dataclass(frozen=True), or leave @dataclass out.")
    for field in fields_of(kind):
        if _type(field) not in _NUMBERS or field.default is dataclasses.MISSING:
            raise UserError(f"{what}: field {field.name} must be a float, an int or a bool and have a default.")
    if kind.module is Shortcut.module and kind.__module__ != __name__:  # those here have theirs in resnets.nn.shortcuts
        raise UserError(f"{what} needs a method module(self, channels) that returns a torch.nn.Module.")
    if before not in (None, kind) and _place(before) != _place(kind):
        raise UserError(f"{what} is already registered by {_place(before)}; choose another kind.")
    SHORTCUTS[kind.kind] = kind
    return kind


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(number)
    return int(number)


def _place(kind: type | None) -> str:
    """Where a class stands: it is the same for one whose file was imported again."""
    return f"{kind.__module__}.{kind.__qualname__}" if kind else ""


def _type(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")


@register_shortcut
@dataclass(frozen=True)
class Identity(Shortcut):
    """x + r, the shortcut that the v2 paper argues for.

    >>> resnets.spec_of("resnet110").shortcut == resnets.Identity()
    True
    """

    kind = "identity"
    formula = "x + r"
    random = False
    drawing = Drawing()


@register_shortcut
@dataclass(frozen=True)
class Scale(Shortcut):
    """a x + b r with constant a = `shortcut`, b = `residual` (v2 Fig. 2b).

    >>> net = resnets.create("resnet20", shortcut=resnets.Scale(0.5, 0.5))
    """

    shortcut: float = 0.5
    residual: float = 1.0
    kind = "scale"
    formula = "a x + b r"
    random = False

    @property
    def drawing(self) -> Drawing:
        a, b = ("" if value == 1 else f"{value:g}" for value in (self.shortcut, self.residual))
        return Drawing(factors=(a, b))


@dataclass(frozen=True)
class _Gated(Shortcut):
    bias: float = -6.0
    random = False
    initial = ("bias",)

    @property
    def meaning(self) -> str:
        return f"{super().meaning}, g(x) = sigmoid(W_g x + b_g), b_g starting at {self.bias:g}"

    @property
    def drawing(self) -> Drawing:
        return Drawing(gate=("1x1", f"b_g = {self.bias:g}", "sigmoid"), factors=("1 - g", ""))


@register_shortcut
@dataclass(frozen=True)
class ExclusiveGate(_Gated):
    """(1 - g(x)) x + g(x) r with g(x) = sigmoid(W_g x + b_g), b_g starting at `bias` (v2 Fig. 2c).

    >>> net = resnets.create("resnet20", shortcut=resnets.ExclusiveGate(bias=-6))
    """

    kind = "exclusive_gate"
    formula = "(1 - g(x)) x + g(x) r"

    @property
    def drawing(self) -> Drawing:
        return super().drawing._replace(factors=("1 - g", "g"))


@register_shortcut
@dataclass(frozen=True)
class ShortcutGate(_Gated):
    """(1 - g(x)) x + r with g(x) = sigmoid(W_g x + b_g), b_g starting at `bias` (v2 Fig. 2d).

    >>> net = resnets.create("resnet20", shortcut=resnets.ShortcutGate(bias=-6))
    """

    kind = "shortcut_gate"
    formula = "(1 - g(x)) x + r"


@register_shortcut
@dataclass(frozen=True)
class Conv1x1(Shortcut):
    """W x + r in every unit (v2 Fig. 2e; option C of v1).

    >>> net = resnets.create("resnet20", shortcut=resnets.Conv1x1())
    """

    kind = "conv1x1"
    formula = "W x + r"
    projects = True
    random = False
    drawing = Drawing()


@register_shortcut
@dataclass(frozen=True)
class Dropout(Shortcut):
    """drop(x) + r (v2 Fig. 2f): a 0/1 mask in training, its expectation 1 - p in testing.

    `rescale` divides the mask by 1 - p in training instead, as most libraries do; the v2 paper's
    analysis (a scale of expectation 0.5) needs the form without.

    >>> net = resnets.create("resnet20", shortcut=resnets.Dropout(0.5))
    """

    p: float = 0.5
    rescale: bool = False
    kind = "dropout"
    formula = "drop(x) + r"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("Dropout", "p", self.p, 0.0, 1.0)
        if self.rescale and self.p == 1:
            raise UserError("Dropout: rescale=True cannot divide by 1 - p = 0; choose p below 1.")

    @property
    def meaning(self) -> str:
        testing = f" over {1 - self.p:g}" if self.rescale else f", in testing {1 - self.p:g} x"
        return f"{super().meaning}; in training a 0/1 mask{testing}"

    @property
    def drawing(self) -> Drawing:
        return Drawing(layers=(f"dropout {self.p:g}" + (" rescaled" if self.rescale else ""),))


@register_shortcut
@dataclass(frozen=True)
class Plain(Shortcut):
    """r alone: no shortcut, the plain counterpart of a residual net.

    >>> resnets.spec_of("plain34").shortcut == resnets.Plain()
    True
    """

    kind = "plain"
    formula = "r"
    plain = True
    random = False
    drawing = Drawing()


def parse_shortcut(text: str) -> Shortcut:
    """`exclusive_gate:-6`, `scale:0.5:1`, `dropout:0.5:true`: a kind and its values in order."""
    kind, *words = text.split(":")
    if kind not in SHORTCUTS:
        raise unknown_kind("shortcut", kind, SHORTCUTS)
    fields = fields_of(SHORTCUTS[kind])
    if len(words) > len(fields):
        raise UserError(f"shortcut {text!r} has too many values; write {pattern_of(SHORTCUTS[kind])}.")
    values = {field.name: _read(text, field, word) for field, word in zip(fields, words, strict=False)}
    return SHORTCUTS[kind](**values)


def _read(text: str, field: dataclasses.Field[Any], word: str) -> float | bool:
    wanted, read = _NUMBERS[_type(field)]
    try:
        return read(word)
    except (KeyError, ValueError):
        raise UserError(f"shortcut {text!r}: {field.name} must be {wanted}, not {word!r}.") from None


def check_shortcut(shortcut: object) -> None:
    """Refuse shortcuts of unregistered classes, also subclasses, and values that no file can hold."""
    if type(shortcut) not in SHORTCUTS.values():
        raise UserError(
            f"shortcut must be one of {', '.join(SHORTCUTS)}, not {shown(shortcut)}; register a class of your own with "
            "resnets.register_shortcut."
        )
    assert isinstance(shortcut, Shortcut)
    Shortcut.__post_init__(shortcut)  # a user's own class may have replaced it


# --- a unit -----------------------------------------------------------------------------------

KERNELS = {"basic": (3, 3), "bottleneck": (1, 3, 1), "one_layer": (3,)}


class ConvSpec(NamedTuple):
    """A convolution of F, without bias, padded to keep the size of the map but for the stride."""

    into: int
    out: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class UnitSpec:
    """A unit, layer by layer. Units of equal layers are equal, wherever they stand."""

    index: int = dataclasses.field(compare=False)  # l of the papers
    stage: int = dataclasses.field(compare=False)
    place: int = dataclasses.field(compare=False)  # in its stage
    shared: Words  # activation in front of the split, for both paths
    convs: tuple[ConvSpec, ...]  # of F
    acts: tuple[Words, ...]  # of F: in front of each convolution, and behind the last
    resize: str  # what brings x to the shape of F(x): a form of padding, "project" (a 1x1), or "" where nothing does
    projection_bn: bool  # BN follows that 1x1
    shortcut: Shortcut
    after: Words  # f
    bn_eps: float
    bn_momentum: float

    @property
    def into(self) -> int:
        """Channels of x."""
        return self.convs[0].into

    @property
    def out(self) -> int:
        """Channels of F(x)."""
        return self.convs[-1].out

    @property
    def stride(self) -> int:
        return math.prod(conv.stride for conv in self.convs)

    @property
    def projects(self) -> bool:
        """Whether the shortcut has a 1x1 convolution."""
        return self.resize == "project"
