"""What a command that lists several things could not read, and left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from resnets.errors import UserError
from resnets.text import say


class LeftOut:
    """Prints each fault on stderr when it is found; at the end `code` is the exit code."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []

    def tell(self, error: UserError) -> None:
        self.errors.append(error)
        say(f"left out: {error}")

    @contextmanager
    def unless_readable(self) -> Iterator[None]:
        """Leave out what the block is about if it cannot be read."""
        try:
            yield
        except UserError as error:
            self.tell(error)

    @property
    def code(self) -> int:
        return 1 if self.errors else 0
