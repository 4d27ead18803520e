"""How `resnets info` prints another system."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from resnets.chain import WORDS, Branch, walk
from resnets.text import columns, count, multiply_adds, print_lines, print_table

if TYPE_CHECKING:
    from resnets.describe.chain import ChainDescription


def print_chain(description: ChainDescription) -> None:
    spec, cost, system = description.spec, description.cost, description.system
    heads = f", {spec.heads} auxiliary head{'s' * (spec.heads > 1)}" if spec.heads else ""
    print_lines(f"{spec.name}: {count(spec.depth)} layers{heads}, {spec.num_classes} classes")
    if system:
        print_lines(system.source)
    if changed := description.changed:
        shown = {**changed, **({"rows": "others"} if "rows" in changed else {})}
        print_lines(f"changed from {spec.name}: {', '.join(f'{field}={value}' for field, value in shown.items())}")
    print_lines(
        f"{count(cost.parameters)} parameters{', heads included' if heads else ''}, "
        f"{multiply_adds(cost.multiply_adds)} multiply-adds in testing on images of {format_map(cost.input)} "
        f"(at least {format_sides((0, spec.min_size, spec.min_size))})",
        "",
    )
    _print_rows(description)
    print_lines("")
    _print_words({word.word for _, words in spec.parts for word in walk(words)})
    if reported := description.reported:
        print_lines("", "What the papers report:", *(f"  {line}" for line in reported))
    if system:
        print_lines("", f"The authors' recipe: resnets train {spec.name} --recipe {system.recipe}")
        if system.uncertain:
            lines = [textwrap.wrap(f"{line}.", columns() - 4) for line in system.uncertain]
            print_lines("", "What is uncertain:")
            print_lines(*(f"{'  ' if first else '    '}{line}" for each in lines for first, line in _mark_first(each)))


def _mark_first(lines: list[str]) -> Iterator[tuple[bool, str]]:
    return ((i == 0, line) for i, line in enumerate(lines))


def _print_rows(description: ChainDescription) -> None:
    header = ("row", "output", "parameters", "multiply-adds", "words")
    table = []
    for row, (_, words) in zip(description.rows, description.spec.parts, strict=True):
        first, *rest = list_lines(words)
        numbers = format_map(row.output), count(row.parameters), multiply_adds(row.multiply_adds)
        table += [(row.name, *numbers, first), *(("", "", "", "", line) for line in rest)]
    print_table(header, table, right=header[2:4])


def list_lines(words: Branch) -> list[str]:
    """Words as lines: each branch on its own."""
    lines = [""]
    for word in words:
        if not word.branches:
            lines[-1] = f"{lines[-1]} {word}".strip() if lines[-1] != ")" else f") {word}"
            continue
        head = str(word).partition("(")[0]
        lines[-1] = f"{lines[-1]} {head}(".strip()
        for i, branch in enumerate(word.branches):
            first, *rest = list_lines(branch)
            lines += [f"{'| ' if i else '  '}{first}", *(f"  {line}" for line in rest)]
        lines.append(")")
    return lines


def _print_words(used: set[str]) -> None:
    """What the words of a network mean, beside how they are written."""
    kinds = [kind for name, kind in WORDS.items() if name in used]
    rows = []
    for kind in kinds:
        first, *rest = textwrap.wrap(kind.text, 60)
        rows += [(kind.form, first), *(("", line) for line in rest)]
    print_table(("word", "meaning"), rows)


def format_map(shape: tuple[int, int, int]) -> str:
    """`64 x 32x32`; channels alone where the map is one pixel."""
    return str(shape[0]) if shape[1:] == (1, 1) else f"{shape[0]} x {format_sides(shape)}"


def format_sides(shape: Any) -> str:
    return "x".join(map(str, shape[1:]))
