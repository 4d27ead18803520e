"""Ctrl-C and SIGTERM, so that the step under way is not lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from resnets.text import say


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM lets the step end and be kept; the second stops at once."""
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
    except ValueError:  # not in the main thread: the caller's business
        pass
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
