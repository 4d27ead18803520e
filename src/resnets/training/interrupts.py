"""Catch Ctrl-C and SIGTERM, so that the current step is not lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from resnets.text import say


@contextmanager
def catch_interrupts() -> Iterator[Callable[[], bool]]:
    """After the first Ctrl-C or SIGTERM the step is finished and saved; the second stops at once."""
    asked: list[int] = []

    def handle(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        say("stopping after this step; once more to stop at once.")

    old = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, handle)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
