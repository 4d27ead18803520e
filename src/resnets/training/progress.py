"""Progress of a training: a bar with an ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from resnets.text import clock, print_lines, say
from resnets.training.callbacks import Callback
from resnets.training.plan import Plan

if TYPE_CHECKING:
    from resnets.training.session import Session

EVERY = 15.0  # seconds between plain lines
TIMED = 10  # steps, or as many as are done after WAIT seconds, after which the time left is estimated
WAIT = 10.0


def mute(sentence: str) -> None:
    pass


def warn(sentence: str) -> None:
    say(f"warning: {sentence}")


class Bar:
    """A bar on a terminal."""

    def __init__(self, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task("starting", total=total, completed=done)
        self.bar.start()

    def advance(self, step: int) -> None:
        self.bar.update(self.task, completed=step)

    def show(self, line: Mapping[str, Any], scores: Mapping[str, str]) -> None:
        self.bar.update(self.task, description=describe(line, scores))

    def close(self) -> None:
        self.bar.stop()


class Lines:
    """A line now and then, and after the last step."""

    def __init__(self, total: int, done: int, out: TextIO) -> None:
        self.total, self.done, self.out = total, done, out
        self.began = self.printed = time.monotonic()

    def advance(self, step: int) -> None:
        pass

    def show(self, line: Mapping[str, Any], scores: Mapping[str, str]) -> None:
        now = time.monotonic()
        if now - self.printed < EVERY and line["step"] < self.total:
            return
        self.printed = now
        left = (now - self.began) / max(line["step"] - self.done, 1) * (self.total - line["step"])
        text = f"step {line['step']}/{self.total}  {describe(line, scores)}  ETA {clock(left)}"
        print_lines(text, file=self.out, flush=True)

    def close(self) -> None:
        pass


_SHOWN_APART = ("kind", "step", "epoch", "lr", "images_per_second", "memory")


def describe(line: Mapping[str, Any], scores: Mapping[str, str]) -> str:
    numbers = {name: value for name, value in line.items() if name not in _SHOWN_APART}
    words = [
        f"epoch {line['epoch']:.1f}",
        *(f"{name} {value:.1f} %" if name == "error" else f"{name} {value:.3f}" for name, value in numbers.items()),
        *(f"{split} {score}" for split, score in scores.items()),
        f"lr {line['lr']:.3g}",
        f"{line['images_per_second']:.0f} images/s",
    ]
    return "  ".join(words)


def describe_score(numbers: Mapping[str, float]) -> str:
    """The error in per cent, or the first number of a score."""
    if "error" in numbers:
        return f"{numbers['error']:.2f} %"
    return next((f"{name} {value:.3f}" for name, value in numbers.items()), "")


class Progress(Callback):
    """Print the plan, the estimated time after some steps, and how training goes. To stderr: stdout is for results."""

    def __init__(self) -> None:
        self.display: Bar | Lines | None = None
        self.scores: dict[str, str] = {}
        self.first: float | None = None  # when the first step was done; it takes longer than the others
        self.estimated = False

    def on_start(self, training: Session, plan: Plan) -> None:
        say(str(plan))
        for notice in plan.notices:
            say(notice)
        self.began = time.monotonic()
        self.show(plan.steps, plan.done)

    def show(self, total: int, done: int) -> None:
        self.total, self.done = total, done
        self.display = Bar(total, done) if sys.stderr.isatty() else Lines(total, done, sys.stderr)

    def on_step(self, training: Session) -> None:
        if not self.estimated and isinstance(self.display, Lines):  # a bar has its own estimate
            self._estimate(training.step)
        if self.display is not None:
            self.display.advance(training.step)

    def _estimate(self, step: int) -> None:
        """Print the time left once, by the real steps that were done so far."""
        now = time.monotonic()
        if self.first is None:
            self.first = now
            return
        timed = step - self.done - 1
        if timed >= TIMED or now - self.began > WAIT:
            self.estimated = True
            left = (now - self.first) / timed * (self.total - step)
            say(f"about {clock(left)} for the {self.total - step:,} steps left, at the speed of the first {timed + 1}.")

    def on_log(self, training: Session, line: Mapping[str, Any]) -> None:
        if line["kind"] == "train" and self.display is not None:
            self.display.show(line, self.scores)

    def on_test(self, training: Session, split: str, score: Mapping[str, Any]) -> None:
        self.scores[split] = describe_score(training.trainer.task.logged(score))

    def close(self) -> None:
        if self.display is not None:
            self.display.close()
