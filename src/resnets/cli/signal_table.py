"""Print the signal that `resnets train --signal-every N` logged; for long runs some steps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from resnets.cli.propagation_table import ROWS, choose_rows
from resnets.runs import Run
from resnets.text import count, print_lines, print_table

_FORMS = {"rms": ".3g", "growth": ".3f", "share": ".2g", "product": ".3g", "truncated": ".1%"}
_HEADER = ("step", "size", "rms", "growth", "F", "product", "cut")
LOGGED_KEY = """\
size         of the maps, from the first to the smallest: rms of the last one,
             growth to it from the first, means of F and cut, product over all"""


def read_signal(words: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The logged signal of those words that are runs and have one."""
    runs = [Run(Path(word)) for word in words if Path(word).is_dir()]
    lines = {run.path.name: [line for line in run.metrics() if line["kind"] == "signal"] for run in runs}
    return {name: found for name, found in lines.items() if found}


def print_signal(name: str, lines: list[dict[str, Any]]) -> None:
    """A row for each size of the maps at each step."""
    print_lines(f"{name}, measured along training {count(len(lines))} times:")
    print_lines()
    sizes = len(lines[0]["rms"])
    rows = [
        (count(lines[i]["step"]), str(size + 1), *(_cell(lines[i][key][size], form) for key, form in _FORMS.items()))
        for i in choose_rows([(0, len(lines) - 1)], max(2, ROWS // sizes))
        for size in range(len(lines[i]["rms"]))
    ]
    print_table(_HEADER, rows, right=_HEADER)
    print_lines()


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form).removesuffix("%")
