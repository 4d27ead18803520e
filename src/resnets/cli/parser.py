"""A parser whose mistakes are `UserError`s."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from resnets.errors import UserError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]


class Parser(argparse.ArgumentParser):
    """Options are written in full, and a mistake raises `UserError`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")
