"""A unit as the papers' figures draw it: the layers as data, computed from the spec alone, then as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from resnets.unit_spec import ConvSpec, UnitSpec

# --- what stands in a unit --------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """`3x3, 32, /2`: a layer's name, its filters and its stride where it has them."""

    name: str
    filters: int | None = None
    stride: int = 1

    def __str__(self) -> str:
        filters = "" if self.filters is None else f", {self.filters}"
        return self.name + filters + (f", /{self.stride}" if self.stride > 1 else "")


Layers = tuple[Layer, ...]
_LAYERS = ("shared", "shortcut", "residual", "gate", "after")
_WORDS = {"bn": Layer("BN"), "relu": Layer("ReLU")}


@dataclass(frozen=True)
class Picture:
    """What a unit does to x, in the order in which it does it."""

    shared: Layers  # in front of the split
    shortcut: Layers  # h: resizing and dropout
    residual: Layers  # F
    gate: Layers  # g, which reads what the shortcut's layers leave
    factors: tuple[str, str]  # of the shortcut and of F at the addition; "" is 1
    after: Layers  # f
    plain: bool  # no shortcut and no addition

    def pattern(self) -> Picture:
        """The picture without its numbers of filters: the same for units of one kind."""
        bare: dict[str, Any] = {n: tuple(replace(layer, filters=None) for layer in getattr(self, n)) for n in _LAYERS}
        return replace(self, **bare)

    def to_dict(self) -> dict[str, Any]:
        layers = {name: [str(layer) for layer in getattr(self, name)] for name in _LAYERS}
        return {**layers, "factors": list(self.factors), "plain": self.plain}


def picture(unit: UnitSpec) -> Picture:
    """The layers of a unit."""
    drawn = unit.shortcut.drawing
    pairs = zip(unit.convs, unit.acts[1:], strict=True)
    return Picture(
        shared=activation(unit.shared),
        shortcut=(*_resize(unit), *_make_layers(drawn.layers, unit.out)),
        residual=sum(((conv_layer(conv), *activation(words)) for conv, words in pairs), activation(unit.acts[0])),
        gate=tuple(_make_layers(drawn.gate, unit.out)),
        factors=drawn.factors,
        after=activation(unit.after),
        plain=unit.shortcut.plain,
    )


def activation(words: Iterable[str]) -> Layers:
    """`("bn", "relu")` as layers."""
    return tuple(_WORDS[word] for word in words)


def conv_layer(conv: ConvSpec) -> Layer:
    return Layer(f"{conv.kernel}x{conv.kernel}", conv.out, conv.stride)


def _resize(unit: UnitSpec) -> Iterator[Layer]:
    """What brings x to the shape of F(x)."""
    if unit.projects:
        yield Layer("1x1", unit.out, unit.stride)
        yield from activation(("bn",) if unit.projection_bn else ())
    elif unit.resize:
        if unit.stride > 1:
            name = f"{unit.stride}x{unit.stride} average" if unit.resize == "pad_pool" else "subsample"
            yield Layer(name, stride=unit.stride)
        if unit.out > unit.into:
            yield Layer("zero-pad both" if unit.resize == "pad_both" else "zero-pad", unit.out - unit.into)


def _make_layers(names: Iterable[str], channels: int) -> Iterator[Layer]:
    """Layers of a shortcut: those named by a kernel have filters."""
    for name in names:
        yield Layer(name, channels if re.fullmatch(r"\d+x\d+", name) else None)


@dataclass(frozen=True)
class Kind:
    """The units of a net that have the same layers, and the picture of the first of them."""

    units: tuple[int, ...]
    picture: Picture

    @property
    def title(self) -> str:
        """`units 18, 36 halve the map`."""
        many = len(self.units) > 1
        title = f"unit{'s' if many else ''} {_ranges(self.units)}"
        if any(layer.stride > 1 for layer in self.picture.residual):
            return f"{title} halve{'' if many else 's'} the map"
        return f"{title}, the first" if self.units == (0,) else title


def kinds(units: Iterable[UnitSpec]) -> list[Kind]:
    """The kinds of units among those of a net, the most frequent first."""
    found: dict[Picture, list[tuple[int, Picture]]] = {}
    for unit in units:
        drawn = picture(unit)
        found.setdefault(drawn.pattern(), []).append((unit.index, drawn))
    groups = sorted(found.values(), key=len, reverse=True)
    return [Kind(tuple(i for i, _ in group), group[0][1]) for group in groups]


def _ranges(numbers: Iterable[int]) -> str:
    """`0-2, 4` for 0, 1, 2, 4."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


# --- as text ----------------------------------------------------------------------------------

_ASCII = str.maketrans("│─┌┐└┘├┴┬×◄►", "|-+++++++x<>")


class _Canvas:
    """Characters on a grid that grows; what comes later covers what was there."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []

    def put(self, x: int, y: int, text: str) -> None:
        """The text with its middle at x."""
        while len(self.rows) <= y:
            self.rows.append([])
        row, start = self.rows[y], x - len(text) // 2
        row.extend(" " * (start + len(text) - len(row)))
        row[start : start + len(text)] = text

    def down(self, x: int, top: int, bottom: int) -> None:
        for y in range(top, bottom):
            self.put(x, y, "│")

    def across(self, y: int, *signs: tuple[int, str]) -> None:
        """A line through the signs, which stand at their x from left to right."""
        for x in range(signs[0][0], signs[-1][0]):
            self.put(x, y, "─")
        for x, sign in signs:
            self.put(x, y, sign)

    def box(self, x: int, y: int, layers: Layers) -> int:
        """The layers in a box on the line at x, and the row below it. No layers make no box."""
        half = _half(layers)
        for row, layer in enumerate(layers, y + 1):
            self.put(x, row, "│" + str(layer).center(2 * half - 1) + "│")
        if layers:
            self.across(y, (x - half, "┌"), (x, "┴"), (x + half, "┐"))
            self.across(y + len(layers) + 1, (x - half, "└"), (x, "┬"), (x + half, "┘"))
        return y + _height(layers)


def _half(layers: Layers) -> int:
    """Columns from the line to the edge of a box."""
    return max((len(str(layer)) // 2 + 2 for layer in layers), default=0)


def _height(layers: Layers) -> int:
    return len(layers) + 2 if layers else 0


def draw(unit: Picture) -> list[str]:
    """The unit from x_l to x_l+1: the shortcut on the left, F on the right, f below the addition."""
    canvas = _Canvas()
    trunk, y = (_plain if unit.plain else _split)(canvas, unit)
    if unit.after:
        y = canvas.box(trunk, y, unit.after)
    else:
        canvas.down(trunk, y, y + 1)
        y += 1
    canvas.put(trunk, y, "x_l+1")
    return ["".join(row).rstrip() for row in canvas.rows]


def _plain(canvas: _Canvas, unit: Picture) -> tuple[int, int]:
    """F alone; where its line ends."""
    trunk = _half(unit.residual)
    canvas.put(trunk, 0, "x_l")
    return trunk, canvas.box(trunk, 1, unit.residual)


def _split(canvas: _Canvas, unit: Picture) -> tuple[int, int]:
    """Both paths and their addition; where its line ends."""
    on_x, on_r = (f"× {factor}" if factor and not unit.gate else factor for factor in unit.factors)
    left = _half(unit.shortcut)
    gate = left + max(_half(unit.shortcut), _half(unit.gate), 9) + 3
    right = gate + _half(unit.gate) if unit.gate else left + max(left, 8)
    right += max(_half(unit.residual), len(on_x)) + 2
    right += (left + right) % 2
    trunk = (left + right) // 2

    canvas.put(trunk, 0, "x_l")
    split = canvas.box(trunk, 1, unit.shared)
    canvas.across(split, (left, "┌"), (trunk, "┴"), (right, "┐"))
    top = split + 1
    branch = top + _height(unit.shortcut)  # where a gate would leave the shortcut
    end = max(top + _height(unit.residual), branch + 1 + _height(unit.gate) if unit.gate else branch)
    for x in (left, right):
        canvas.down(x, top, end + 1)
    canvas.box(right, top, unit.residual)
    if unit.gate:
        canvas.box(left, top, unit.shortcut)
        canvas.across(branch, (left, "├"), (gate, "┐"))
        canvas.down(gate, branch + 1, end)
        canvas.box(gate, branch + 1, unit.gate)
        canvas.across(end, (left, "×"), (left + 2, " ◄─"), ((left + gate) // 2 + 1, f" {on_x} "), (gate, "┘"))
        if on_r:
            canvas.across(end, (gate, "┴"), ((gate + right) // 2, f" {on_r} "), (right - 2, "─► "), (right, "×"))
        end += 1
    else:
        canvas.box(left, top + (end - branch) // 2, unit.shortcut)
        for x, factor in ((left, on_x), (right, on_r)):
            canvas.put(x + len(factor) // 2, end, factor)
        end += bool(on_x or on_r)
    canvas.across(end, (left, "└"), (trunk, "(+)"), (right, "┘"))
    return trunk, end + 1


def draw_kinds(found: Iterable[Kind], columns: int = 100, ascii_only: bool = False) -> str:
    """The kinds of units side by side, and below each other where the columns end."""
    panels: list[list[str]] = []
    for kind in found:
        lines = draw(kind.picture)
        width = max(map(len, lines))
        panels.append([*textwrap.wrap(kind.title, max(width, 30)), "", *lines])
    text = "\n\n".join("\n".join(_beside(row)) for row in _rows(panels, columns))
    return text.translate(_ASCII) if ascii_only else text


_GAP = 3


def _rows(panels: list[list[str]], columns: int) -> Iterator[list[list[str]]]:
    """As many panels in a row as fit."""
    row: list[list[str]] = []
    used = 0
    for panel in panels:
        width = max(map(len, panel))
        if row and used + _GAP + width > columns:
            yield row
            row, used = [], 0
        used += width + (_GAP if row else 0)
        row.append(panel)
    yield row


def _beside(panels: list[list[str]]) -> list[str]:
    """Panels of one row, their drawings starting on the same line."""
    titles = max(panel.index("") for panel in panels)
    panels = [[*panel[: (t := panel.index(""))], *[""] * (titles - t), *panel[t:]] for panel in panels]
    widths = [max(map(len, panel)) for panel in panels]
    lines = zip_longest(*panels, fillvalue="")
    return [(" " * _GAP).join(map(str.ljust, line, widths)).rstrip() for line in lines]
