"""Print lines, tables (rich on a terminal, plain text elsewhere) and JSON.

Names of classes, folders, files and networks may come from others, and a terminal obeys escape sequences. So this
module makes every line and cell printable, and no other module calls `print`.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from typing import IO, Any, Literal

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
    """Escape whatever could control a terminal, as `\\x1b`: control characters, line breaks, characters that reverse
    the direction of writing, and lone surrogates."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def columns() -> int:
    """The width of a drawing."""
    return min(shutil.get_terminal_size().columns, WIDEST) if sys.stdout.isatty() else WIDEST


def shows(text: str) -> bool:
    """Whether the encoding of the output has all characters of the text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def print_lines(*lines: object, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print a line for each argument, or an empty line. A line break inside an argument is escaped, as it can only come
    from a name. `file` defaults to the current standard output."""
    out = sys.stdout if file is None else file
    encoding = getattr(out, "encoding", None) or "utf-8"
    text = "\n".join(printable(str(line)) for line in lines)
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=out, end=end, flush=flush)


def say(sentence: str) -> None:
    """Print a sentence to standard error."""
    print_lines(f"resnets: {sentence}", file=sys.stderr, flush=True)


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON in printable ASCII; numbers that JSON does not have become null."""
    return json.dumps(_finite(data), indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def print_json(data: Any) -> None:
    print_lines(*json_text(data, indent=2).split("\n"))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print rows under a header; the columns named in `right` are aligned to the right."""
    cells = [[printable(cell) for cell in row] for row in rows]
    (_rich if sys.stdout.isatty() else _plain)(header, cells, right)


def _plain(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        )
        print_lines("  ".join(cells).rstrip())


def _rich(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in header:  # Text, so that square brackets are not markup
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(Text(name), justify=justify, no_wrap=name in right, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=max(shutil.get_terminal_size().columns, NARROWEST)).print(table)
