"""The papers' equations in MathML, which browsers draw themselves."""

from __future__ import annotations

from typing import NamedTuple

from resnets.report.page.html import Html, tag
from resnets.unit_spec import ORDERS, Scale, Shortcut


def name(letter: object) -> Html:
    return tag("mi", letter)


def number(value: object) -> Html:
    return tag("mn", value)


def sign(word: str) -> Html:
    return tag("mo", word)


def row(*parts: object) -> Html:
    return tag("mrow", *parts)


def below(letter: object, index: object) -> Html:
    """A letter with an index."""
    return tag("msub", letter, index)


def call(function: object, *arguments: object) -> Html:
    inner: list[object] = []
    for argument in arguments:
        inner += [sign(",")] * bool(inner) + [argument]
    return row(function, sign("("), *inner, sign(")"))


def display(*parts: object) -> Html:
    return tag("math", row(*parts), display="block")


L = name("l")
X, Y = below(name("x"), L), below(name("y"), L)
NEXT = below(name("x"), row(L, sign("+"), number(1)))
F = call(name("ℱ"), X, below(name("𝒲"), L))
GATE = call(name("g"), X)
LAMBDA = below(name("λ"), name("i"))


def write_addition(shortcut: Shortcut) -> Html:
    """y_l of equation (1), with h filled in."""
    return display(Y, sign("="), *_add(shortcut))


_OPEN = row(sign("("), number(1), sign("−"), GATE, sign(")"))
_ADDITIONS: dict[str, tuple[Html, ...]] = {  # of kinds without numbers in them
    "identity": (X, sign("+"), F),
    "exclusive_gate": (_OPEN, X, sign("+"), GATE, F),
    "shortcut_gate": (_OPEN, X, sign("+"), F),
    "conv1x1": (below(name("W"), name("s")), X, sign("+"), F),
    "dropout": (below(name("m"), L), sign("⊙"), X, sign("+"), F),
    "plain": (F,),
}


def _add(shortcut: Shortcut) -> tuple[Html, ...]:
    if isinstance(shortcut, Scale):
        b = () if shortcut.residual == 1 else (number(f"{shortcut.residual:g}"),)
        return number(f"{shortcut.shortcut:g}"), X, sign("+"), *b, F
    return _ADDITIONS[shortcut.kind]


def write_after(order: str) -> Html:
    """x_{l+1} of equation (2), with f filled in."""
    value = Y
    for word in ORDERS[order].after:
        value = call(tag("mtext", {"bn": "BN", "relu": "ReLU"}[word]), value)
    return display(NEXT, sign("="), value)


def find_constant(shortcut: Shortcut) -> float | None:
    """lambda where it is the same in every unit."""
    return shortcut.shortcut if isinstance(shortcut, Scale) else {"identity": 1.0, "plain": 0.0}.get(shortcut.kind)


_NAMES = {
    "identity": "identity: x",
    "scale": "scaling: {shortcut:g} x, {residual:g} F",
    "exclusive_gate": "exclusive gate, b = {bias:g}",
    "shortcut_gate": "shortcut-only gate, b = {bias:g}",
    "conv1x1": "1x1 convolution",
    "dropout": "dropout {p:g}",
    "plain": "none: a plain net",
}


def name_shortcut(shortcut: Shortcut) -> str:
    """For a list to choose from."""
    return _NAMES[shortcut.kind].format(**vars(shortcut))


class Between(NamedTuple):
    """Two maps of one size, the last unit between them, and the product of the lambdas of these units."""

    first: object
    last: object
    until: object
    factor: object

    @property
    def sum(self) -> Html:
        return tag("munderover", sign("∑"), row(name("i"), sign("="), self.first), self.until)


def write_signal(maps: Between) -> Html:
    """Equation (7): x_L is the factor times x_l, and the sum of what the units add."""
    added = call(name("ℱ̂"), below(name("x"), name("i")), below(name("𝒲"), name("i")))
    end, start = below(name("x"), maps.last), below(name("x"), maps.first)
    return display(end, sign("="), sign("("), maps.factor, sign(")"), start, sign("+"), maps.sum, added)


def write_gradient(maps: Between) -> Html:
    """Equation (8): the gradient at x_l is that at x_L times the factor, and what comes back through the units."""
    end, start = (_partial(below(name("x"), index)) for index in (maps.last, maps.first))
    added = row(tag("mfrac", sign("∂"), start), maps.sum, name("ℱ̂"))
    loss = _partial(name("ℰ"))
    return display(
        tag("mfrac", loss, start),
        sign("="),
        tag("mfrac", loss, end),
        sign("("),
        maps.factor,
        sign("+"),
        added,
        sign(")"),
    )


def write_general() -> Between:
    """l, L and the product, as the paper writes them."""
    until = row(name("L"), sign("−"), number(1))
    product = row(tag("munderover", sign("∏"), row(name("i"), sign("="), L), until), LAMBDA)
    return Between(L, name("L"), until, product)


def _partial(value: object) -> Html:
    return row(sign("∂"), value)
