"""The exception for mistakes of the user, and its subclasses that a program may want to catch."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable
from pathlib import Path

_SHOWN = 100  # characters of a wrong value


class UserError(ValueError):
    """Bad input. The message is one sentence: what is wrong, where, and what to do about it.

    The command line prints it without a traceback and exits with code 2.

    >>> try:
    ...     resnets.create("resnet21")
    ... except resnets.UserError as error:
    ...     print(error)
    unknown network 'resnet21'...
    """


class DivergedError(UserError):
    """A run diverged to a number that is not finite. `why` says where, `path` is the run's folder.

    >>> try:
    ...     run = resnets.train("preresnet20", data="cifar10", epochs=1)
    ... except resnets.DivergedError as error:
    ...     print(error.path, error.why)
    """

    def __init__(self, path: Path, why: str, advice: str) -> None:
        super().__init__(f"{why}; {advice}")
        self.path, self.why = path, why


def one_of(what: str, value: object, known: Iterable[str]) -> UserError:
    """The error for an unknown word; it suggests the nearest known ones."""
    known = list(known)
    near = difflib.get_close_matches(str(value), known, n=3, cutoff=0.6)
    advice = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(known)}."
    return UserError(f"unknown {what} {shown(value)}: {advice}")


def shown(value: object) -> str:
    """`repr` for errors; long values are cut off."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_OUT_OF_MEMORY = (
    "Storage size calculation overflowed",
    "allocate memory",
    "not enough memory",
    "bad_alloc",
    "out of memory",
    "failed to map segment",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: torch and the dynamic loader say so only in their messages."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)


def describe_out_of_memory(error: BaseException) -> str:
    found = re.search(r"allocate (\d+) bytes", str(error))
    asked = f" when {int(found[1]) >> 20:,} MiB more were needed" if found else ""
    return f"memory ran out{asked}; to train in less, give a smaller --batch or --micro-batch, or --memory min."
