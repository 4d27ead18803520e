"""Tables and numbers for people: rich on a terminal, plain text of full width elsewhere."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

WIDEST = 100  # columns of a drawing
NARROWEST = 60  # of a table, in which rich would leave columns out


def count(n: int) -> str:
    """`1,727,962`."""
    return f"{n:,}"


def multiply_adds(n: int) -> str:
    """`3.86 G`, `40.6 M`: three digits."""
    unit, value = ("G", n / 1e9) if n >= 999.5e6 else ("M", n / 1e6)
    decimals = sum(value < limit for limit in (0.9995, 9.995, 99.95))
    return f"{value:,.{decimals}f} {unit}"


def clock(seconds: float) -> str:
    """`1:02:03`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def printable(text: str) -> str:
    """The text without what could command a terminal: names may come from foreign files."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def columns() -> int:
    """How wide a drawing may be."""
    return min(shutil.get_terminal_size().columns, WIDEST) if sys.stdout.isatty() else WIDEST


def shows(text: str) -> bool:
    """Whether the output's encoding has all characters of the text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """The rows under their header; the columns named in `right` are aligned to the right."""
    (_rich if sys.stdout.isatty() else _plain)(header, rows, right)


def _plain(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        )
        print("  ".join(cells).rstrip())


def _rich(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in header:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in right, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text, as square brackets in a cell are no markup
    Console(width=max(shutil.get_terminal_size().columns, NARROWEST)).print(table)
