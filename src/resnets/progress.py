"""Report progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from resnets.text import print_lines, printable

Advance = Callable[[int], None]


class Progress(Protocol):
    """Where long work reports to; implement it to show progress elsewhere."""

    def note(self, text: str) -> None:
        """Show a sentence."""

    def task(self, what: str, total: int | None) -> AbstractContextManager[Advance]:
        """Start a task of `total` steps, or of unknown length; yields the function that counts steps."""


class Console:
    """Reports on standard error."""

    def note(self, text: str) -> None:
        print_lines(text, file=sys.stderr, flush=True)

    @contextmanager
    def task(self, what: str, total: int | None) -> Iterator[Advance]:
        if sys.stderr.isatty():
            yield from self._bar(what, total)
        else:
            yield from self._lines(what, total)

    def _bar(self, what: str, total: int | None) -> Iterator[Advance]:
        from rich.console import Console as Terminal
        from rich.progress import Progress as Bar
        from rich.progress import TextColumn

        name = TextColumn("{task.description}", style="progress.description", markup=False)
        with Bar(name, *Bar.get_default_columns()[1:], console=Terminal(stderr=True), transient=True) as bar:
            task = bar.add_task(printable(what), total=total)
            yield lambda steps: bar.advance(task, steps)

    def _lines(self, what: str, total: int | None) -> Iterator[Advance]:
        self.note(f"{what} ...")
        done = 0

        def advance(steps: int) -> None:
            nonlocal done
            before, done = done, done + steps
            if total and (quarter := 4 * done // total) > 4 * before // total:
                self.note(f"{what}: {25 * quarter} %")

        yield advance


class Silent:
    """Reports nothing."""

    def note(self, text: str) -> None:
        pass

    @contextmanager
    def task(self, what: str, total: int | None) -> Iterator[Advance]:
        yield lambda steps: None
