"""Answers for people and for programs. `out` is where they go, None for wherever `print` writes at that moment."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import IO, Protocol

from resnets.evaluation.predictions import Answer
from resnets.text import json_text, print_lines, printable, shows
from resnets.metadata import Metadata

_BAR = 30  # columns of a probability of 1
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")  # how cells begin that a spreadsheet does not take for text


class Writer(Protocol):
    def tell(self, answer: Answer) -> None: ...

    def close(self) -> None: ...


class Table:
    """A picture after the other, its classes with bars."""

    def __init__(self, about: Metadata, out: IO[str] | None) -> None:
        self.about, self.out = about, out
        self.block = "█" if shows("█") else "#"

    def tell(self, answer: Answer) -> None:
        if answer.fault:
            return
        names = [printable(self.about.name(label)) for label in answer.labels]
        width = max(map(len, names))
        print_lines(answer.file, file=self.out)
        for name, share in zip(names, answer.probabilities, strict=True):
            bar = self.block * round(_BAR * share)
            print_lines(f"  {name:<{width}}  {100 * share:5.1f} %  {bar}".rstrip(), file=self.out)

    def close(self) -> None:
        pass


class Json:
    """One list, an object for each picture, as they come."""

    def __init__(self, about: Metadata, out: IO[str] | None) -> None:
        self.about, self.out, self.first = about, out, True

    def tell(self, answer: Answer) -> None:
        told: dict[str, object] = {"file": answer.file}
        if answer.fault:
            told["error"] = answer.fault
        else:
            rows = zip(answer.labels, answer.probabilities, strict=True)
            told["classes"] = [{"label": i, "name": self.about.name(i), "probability": p} for i, p in rows]
        print_lines("[" if self.first else ",", json_text(told), end="", file=self.out)
        self.first = False

    def close(self) -> None:
        print_lines("", "]", file=self.out)


class Csv:
    """A line for each class of each picture; those that could not be read have none.

    A spreadsheet takes a cell that begins as a formula for one, whoever wrote it: such a name gets an apostrophe in
    front, and so does one that begins with an apostrophe, so that taking one away gives every name back.
    """

    def __init__(self, about: Metadata, out: IO[str] | None) -> None:
        self.about, self.out = about, out
        self._line("file", "rank", "label", "class", "probability")

    def tell(self, answer: Answer) -> None:
        for rank, (label, share) in enumerate(zip(answer.labels, answer.probabilities, strict=True), 1):
            self._line(_cell(answer.file), rank, label, _cell(self.about.name(label)), f"{share:.6f}")

    def _line(self, *cells: object) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        print_lines(text.getvalue(), file=self.out)

    def close(self) -> None:
        pass


def _cell(name: str) -> str:
    return printable(f"'{name}" if name.startswith(_FORMULA) else name)


WRITERS: dict[str, Callable[[Metadata, IO[str] | None], Writer]] = {"table": Table, "json": Json, "csv": Csv}
