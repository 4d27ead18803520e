"""What a command line is made of: a parser that tells mistakes in our words, and the kinds of values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from resnets.errors import UserError, shown

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]


SEEDS = -(2**63), 2**64 - 1  # what torch takes


class Parser(argparse.ArgumentParser):
    """Options are written in full, and a mistake raises `UserError`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def either(words: Iterable[str]) -> str:
    return ", ".join(words)


def positive(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number of at least 1")
    return int(text)


def seed(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text) or not SEEDS[0] <= int(text) <= SEEDS[1]:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number of 64 bits")
    return int(text)


def numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not whole numbers with commas between them") from None


def reals(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not numbers with commas between them") from None


def one_or_more(text: str) -> int | tuple[int, ...]:
    found = numbers(text)
    return found if len(found) > 1 else found[0]


def kernels_of(text: str) -> str | tuple[int, ...]:
    return numbers(text) if text[:1].isdigit() else text


def size_of(text: str) -> int | tuple[int, int]:
    """`320` or `320x256`."""
    if not re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})?", text):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is neither a side such as 320 nor a height and width such as 320x256"
        )
    height, _, width = text.partition("x")
    return (int(height), int(width)) if width else int(height)
