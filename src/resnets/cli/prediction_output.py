"""Write predictions as a table, JSON or CSV to `out`; None is standard output at that moment."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import IO, Protocol

from resnets.evaluation.predict import Prediction
from resnets.text import json_text, print_lines, printable, shows

_BAR = 30  # columns of a probability of 1
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")  # how cells begin that a spreadsheet does not take for text


class Writer(Protocol):
    def write(self, found: Prediction) -> None: ...

    def close(self) -> None: ...


class Table:
    """One picture after another, its classes with bars."""

    def __init__(self, out: IO[str] | None) -> None:
        self.out = out
        self.block = "█" if shows("█") else "#"

    def write(self, found: Prediction) -> None:
        if found.fault:
            return
        names = [printable(name) for name in found.classes]
        width = max(map(len, names))
        print_lines(found.file, file=self.out)
        for name, share in zip(names, found.probabilities, strict=True):
            bar = self.block * round(_BAR * share)
            print_lines(f"  {name:<{width}}  {100 * share:5.1f} %  {bar}".rstrip(), file=self.out)

    def close(self) -> None:
        pass


class Json:
    """One list, an object for each picture, as they come."""

    def __init__(self, out: IO[str] | None) -> None:
        self.out, self.first = out, True

    def write(self, found: Prediction) -> None:
        rows = zip(found.labels, found.classes, found.probabilities, strict=True)
        classes = [{"label": label, "name": name, "probability": p} for label, name, p in rows]
        self.add(found.file, found.fault, classes=classes)

    def add(self, file: str, fault: str, **found: object) -> None:
        row = {"file": file, **({"error": fault} if fault else found)}
        print_lines("[" if self.first else ",", json_text(row), end="", file=self.out)
        self.first = False

    def close(self) -> None:
        print_lines("", "]", file=self.out)


class Csv:
    """A line for each class of each picture; those that could not be read have none.

    A spreadsheet takes a cell that begins as a formula for one, whoever wrote it: such a name gets an apostrophe in
    front, and so does one that begins with an apostrophe, so that taking one away gives every name back.
    """

    def __init__(self, out: IO[str] | None) -> None:
        self.out = out
        print_cells("file", "rank", "label", "class", "probability", file=out)

    def write(self, found: Prediction) -> None:
        rows = zip(found.labels, found.classes, found.probabilities, strict=True)
        for rank, (label, name, share) in enumerate(rows, 1):
            print_cells(write_cell(found.file), rank, label, write_cell(name), f"{share:.6f}", file=self.out)

    def close(self) -> None:
        pass


def print_cells(*cells: object, file: IO[str] | None) -> None:
    """A line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    print_lines(text.getvalue(), file=file)


def write_cell(name: str) -> str:
    return printable(f"'{name}" if name.startswith(_FORMULA) else name)


WRITERS: dict[str, Callable[[IO[str] | None], Writer]] = {"table": Table, "json": Json, "csv": Csv}
