"""What a person sees of a training: a bar with an ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from resnets.text import clock, print_lines, say

EVERY = 15.0  # seconds between plain lines


def mute(sentence: str) -> None:
    pass


def warn(sentence: str) -> None:
    say(f"warning: {sentence}")


class Progress:
    """Says nothing."""

    def advance(self, step: int) -> None:
        """`step` steps are done."""

    def tell(self, line: dict[str, Any]) -> None:
        """What the last steps came to."""

    def scored(self, split: str, error: float) -> None:
        """An error that was measured."""


class _Bar(Progress):
    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task
        self.errors: dict[str, float] = {}

    def advance(self, step: int) -> None:
        self.bar.update(self.task, completed=step)

    def tell(self, line: dict[str, Any]) -> None:
        self.bar.update(self.task, description=describe(line, self.errors))

    def scored(self, split: str, error: float) -> None:
        self.errors[split] = error


class _Lines(Progress):
    def __init__(self, total: int, done: int, out: TextIO) -> None:
        self.total, self.out, self.step, self.done = total, out, done, done
        self.began = self.said = time.monotonic()
        self.errors: dict[str, float] = {}

    def advance(self, step: int) -> None:
        self.step = step

    def tell(self, line: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self.said < EVERY and line["step"] < self.total:
            return
        self.said = now
        left = (now - self.began) / max(line["step"] - self.done, 1) * (self.total - line["step"])
        text = f"step {line['step']}/{self.total}  {describe(line, self.errors)}  ETA {clock(left)}"
        print_lines(text, file=self.out, flush=True)

    def scored(self, split: str, error: float) -> None:
        self.errors[split] = error


def describe(line: dict[str, Any], errors: dict[str, float]) -> str:
    words = [
        f"epoch {line['epoch']:.1f}",
        f"loss {line['loss']:.3f}",
        f"error {line['error']:.1f} %",
        *(f"{split} {error:.2f} %" for split, error in errors.items()),
        f"lr {line['lr']:.3g}",
        f"{line['images_per_second']:.0f} images/s",
    ]
    return "  ".join(words)


@contextmanager
def progress(total: int, done: int, quiet: bool) -> Iterator[Progress]:
    """The right kind for where the output goes. It goes to stderr: stdout is for results."""
    if quiet:
        yield Progress()
        return
    if not sys.stderr.isatty():
        yield _Lines(total, done, sys.stderr)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Rich

    columns = [
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    ]
    with Rich(*columns, console=Console(stderr=True)) as bar:
        yield _Bar(bar, bar.add_task("starting", total=total, completed=done))
