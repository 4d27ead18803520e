"""A parser whose mistakes are `UserError`s."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from resnets.errors import UserError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]


class Parser(argparse.ArgumentParser):
    """Options are written in full, and a mistake raises `UserError`. `--help` leaves out the options in `rare`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.rare: list[argparse.Action] = []
        self.shows_all = False

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        if not self.rare or self.shows_all:
            return super().format_help()
        helps = [action.help for action in self.rare]
        for action in self.rare:
            action.help = argparse.SUPPRESS
        text = super().format_help()
        for action, help in zip(self.rare, helps, strict=True):
            action.help = help
        return f"{text}\n{len(helps)} more options: {self.prog} --help-all\n"


class HelpAll(argparse.Action):
    """`--help-all`: the help with all options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        parser.shows_all = True
        parser.print_help()
        parser.exit()
