"""The command line: parse, dispatch, and print a user's mistake in one line.

A subcommand is a function that adds its parser to `commands` and sets `run`, which imports its handler when it
is called, so that `resnets --help` imports neither torch nor rich. `COMMANDS` has them in the order of the help.
"""

# ruff: noqa: E402
from __future__ import annotations

from resnets.interrupt import STOPPED, end_imports_on_ctrl_c

_restore_ctrl_c = end_imports_on_ctrl_c()

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resnets.cli import analyze, completion, data, doctor, evaluate, models, papers, predict, runs, training, weights
from resnets.cli.parser import Parser
from resnets.errors import UserError, describe_out_of_memory, is_out_of_memory, one_of
from resnets.text import say
from resnets.version import __version__

if TYPE_CHECKING:
    from resnets.cli.parser import Commands

COMMANDS = (
    models.models,
    models.info,
    training.train,
    evaluate.evaluate,
    predict.predict,
    weights.convert,
    weights.export,
    analyze.analyze,
    runs.runs,
    runs.compare,
    runs.plot,
    runs.results,
    papers.reproduce,
    runs.report,
    data.data,
    doctor.doctor,
    completion.add_completion(lambda: _make_parser()[0]),
)


_LONGEST, _HALF = 2000, 990  # characters of a message, in which names may be as long as somebody likes


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is 0, 1 if a part could not be done, 2 after a user's mistake, 130 after Ctrl-C,
    141 into a closed pipe."""
    restore_ctrl_c = end_imports_on_ctrl_c()
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape characters that the encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _dispatch(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()  # here, where a closed pipe can still be caught
        return code
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt as error:
        if not error.args:  # else it has been printed
            _fail(STOPPED)
        return 130
    except BrokenPipeError:
        _let_go()
        return 141
    except (OSError, MemoryError, RuntimeError, ImportError) as error:  # a full disk is not a bug either
        if is_out_of_memory(error):
            return _fail(describe_out_of_memory(error))
        if not isinstance(error, OSError):
            raise
        _let_go()
        return _fail(f"{error}.")
    finally:
        restore_ctrl_c()


def _make_parser() -> tuple[Parser, Commands]:
    parser = Parser(prog="resnets", description="Deep residual networks of both papers.")
    parser.add_argument("--version", action="version", version=f"resnets {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for add in COMMANDS:
        add(commands)
    return parser, commands


def _dispatch(argv: list[str]) -> int:
    parser, commands = _make_parser()
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    for word in argv:
        _require_possible(word)
    if not argv[0].startswith("-") and argv[0] not in commands.choices:
        raise one_of("command", argv[0], commands.choices)
    try:
        args, unknown = parser.parse_known_args(argv)
    except SystemExit:  # after --help and --version
        return 0
    if unknown:
        raise _unexpected(unknown[0], commands.choices.get(argv[0], parser))
    return args.run(args) or 0


def _require_possible(word: str) -> None:
    """Refuse arguments with null bytes or lone surrogates, which no file name can hold, and `--` as a value."""
    if "\0" in word:
        raise UserError("an argument holds a null byte, which no name of a file or an option has.")
    if re.fullmatch(r"--[a-z-]+=--|-[a-z]--", word):  # argparse would make an empty list of it
        raise UserError(f"{word}: '--' cannot be the value of an option.")
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        raise UserError(f"the argument {word!r} holds half of a character, a lone surrogate.") from None


def _unexpected(word: str, parser: argparse.ArgumentParser) -> UserError:
    if word.startswith("-"):
        known = sorted(name for name in parser._option_string_actions if name.startswith("--"))
        return one_of("option", word.partition("=")[0], known)
    return UserError(f"unexpected argument {word!r} (see {parser.prog} --help)")


def _fail(message: str) -> int:
    text = " ".join(message.split())
    say(text if len(text) <= _LONGEST else f"{text[:_HALF]} ... {text[-_HALF:]}")
    return 2


def _let_go() -> None:
    """Redirect standard output to /dev/null if its reader is gone; otherwise Python complains at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_restore_ctrl_c()
