"""Files that a command could not read and leaves out of a list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from resnets.errors import UserError
from resnets.text import say


class LeftOut:
    """Prints each error to stderr; `code` is the exit code of the command."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []

    def add(self, error: UserError) -> None:
        self.errors.append(error)
        say(f"left out: {error}")

    @contextmanager
    def skip_unreadable(self) -> Iterator[None]:
        """Leave out what the block reads if it cannot be read."""
        try:
            yield
        except UserError as error:
            self.add(error)

    @property
    def code(self) -> int:
        return 1 if self.errors else 0
