"""Progress of a training: a bar with an ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
        self.bar: Any = None  # on a terminal; else a line now and then, and after the last step
        self.scores: dict[str, str] = {}
        self.first: float | None = None  # when the first step was done; it takes longer than the others
        self.estimated = False

    def on_start(self, training: Session, plan: Plan) -> None:
        for sentence in (str(plan), *plan.notices):
            say(sentence)
        self.show(plan.steps, plan.done, training.trainer.schedule.work)

    def show(self, total: int, done: int, work: Callable[[int], float] = float) -> None:
        """`work` is that of a number of steps: those with larger images take longer."""
        self.total, self.done, self.work, self.began = total, done, work, time.monotonic()
        self.printed = self.began
        if sys.stderr.isatty():
            self.bar = make_bar()
            self.task = self.bar.add_task("starting", total=work(total), completed=work(done), step=done, steps=total)
            self.bar.start()

    def on_step(self, training: Session) -> None:
        if self.bar is not None:  # which has its own estimate
            self.bar.update(self.task, completed=self.work(training.step), step=training.step)
        elif not self.estimated:
            self._estimate(training.step)

    def _estimate(self, step: int) -> None:
        """Print the time left once, by the real steps that were done so far."""
        now = time.monotonic()
        if self.first is None:
            self.first = now
            return
        timed = step - self.done - 1
        if timed >= TIMED or now - self.began > WAIT:
            self.estimated = True
            left = self._time_left(now - self.first, self.done + 1, step)
            say(f"about {clock(left)} for the {self.total - step:,} steps left, at the speed of the first {timed + 1}.")

    def _time_left(self, seconds: float, first: int, step: int) -> float:
        """By the seconds that the work from step `first` to `step` took."""
        done = self.work(step) - self.work(first)
        return seconds * (self.work(self.total) - self.work(step)) / done if done else 0.0

    def on_log(self, training: Session, line: Mapping[str, Any]) -> None:
        if line["kind"] != "train":
            return
        text, step, now = describe(line, self.scores), line["step"], time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, description=text)
        elif now - self.printed >= EVERY or step == self.total:
            self.printed = now
            left = self._time_left(now - self.began, self.done, step)
            print_lines(f"step {step}/{self.total}  {text}  ETA {clock(left)}", file=sys.stderr, flush=True)

    def on_test(self, training: Session, split: str, score: Mapping[str, Any]) -> None:
        self.scores[split] = describe_score(training.trainer.task.logged(score))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def make_bar() -> Any:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.BarColumn(bar_width=20),
        progress.TextColumn("{task.fields[step]:,}/{task.fields[steps]:,}"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("ETA"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
    )
