"""The command line: parses and dispatches, and tells a user's mistake in one line.

A subcommand is a function that adds its parser to `commands` and sets `run`, which imports its handler when it
is called, so that `resnets --help` imports neither torch nor rich. `COMMANDS` has them in the order of the help.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from resnets import __version__
from resnets.errors import UserError, one_of
from resnets.spec import KERNELS, ORDERS, RESIZES, SHARES, SHORTCUTS, STEMS, STRIDES, Spec

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]


class Parser(argparse.ArgumentParser):
    """Options are written in full, and a mistake raises `UserError`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


# --- options of a network, for every command that takes one -----------------------------------


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """An option for every field of `Spec` and for `depth`; `network_changes` reads them back."""
    group = parser.add_argument_group("network", "what differs from the named network")

    def add(option: str, meaning: str, **settings: Any) -> None:
        group.add_argument(option, help=meaning.replace("%", "%%"), **settings)

    add("--num-classes", "outputs of the classifier", type=int, metavar="N")
    add("--in-channels", "channels of the images", type=int, metavar="N")
    add("--stem", f"first layers: {_either(STEMS)}", metavar="STEM")
    add("--stem-activation", "BN, ReLU right after the first convolution", action=argparse.BooleanOptionalAction)
    add("--depth", "weight layers, in stages of equal length", type=int, metavar="N")
    add("--blocks", "units in each stage, or one number for all: 18,18,18 or 18", type=_one_or_more, metavar="N,N,N")
    add("--widths", "filters inside the units of each stage: 16,32,64", type=_numbers, metavar="N,N,N")
    kernels = (f"{name} ({','.join(map(str, sizes))})" for name, sizes in KERNELS.items())
    add("--kernels", f"convolutions of F: {_either(kernels)}, or other sizes", type=_kernels, metavar="KERNELS")
    orders = (f"{name} ({order.figure})" for name, order in ORDERS.items())
    add("--order", f"where BN and ReLU stand, as in Figure 4 of v2: {_either(orders)}", metavar="ORDER")
    shortcuts = (f"{_pattern(name)} ({kind.formula})" for name, kind in SHORTCUTS.items())
    add("--shortcut", f"h and how it meets r = F(x): {_either(shortcuts)}", metavar="KIND")
    resizes = (f"{name} ({meaning})" for name, meaning in RESIZES.items())
    add("--resize", f"the shortcut where the dimension changes: {_either(resizes)}", metavar="RESIZE")
    add("--stride-on", f"the convolution of a bottleneck that halves the map: {_either(STRIDES)}", metavar="KERNEL")
    add("--share-activation", f"units that activate x for both paths: {_either(SHARES)}", metavar="WHERE")
    add("--bn-eps", "added to BN's variance", type=float, metavar="X")
    add("--bn-momentum", "weight of a new batch in BN's running statistics", type=float, metavar="X")


def network_changes(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_network_options` that were given, as `resnets.create` takes them."""
    names = [field.name for field in dataclasses.fields(Spec) if field.name != "name"] + ["depth"]
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def _either(words: Iterable[str]) -> str:
    return ", ".join(words)


def _pattern(kind: str) -> str:
    """`scale:SHORTCUT:RESIDUAL`."""
    fields = dataclasses.fields(SHORTCUTS[kind])  # type: ignore[arg-type]
    return ":".join([kind, *(field.name.upper() for field in fields)])


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not whole numbers with commas between them") from None


def _one_or_more(text: str) -> int | tuple[int, ...]:
    numbers = _numbers(text)
    return numbers if len(numbers) > 1 else numbers[0]


def _kernels(text: str) -> str | tuple[int, ...]:
    return _numbers(text) if text[:1].isdigit() else text


def _size(text: str) -> int | tuple[int, int]:
    """`320` or `320x256`."""
    if not re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a side such as 320 nor a height and width such as 320x256"
        )
    height, _, width = text.partition("x")
    return (int(height), int(width)) if width else int(height)


# --- the commands -----------------------------------------------------------------------------


def _models(commands: Commands) -> None:
    parser = commands.add_parser("models", help="list the named networks", description="List the named networks.")
    parser.add_argument("pattern", nargs="?", default="*", help="a shell pattern: 'preresnet*'", metavar="PATTERN")
    parser.add_argument("--json", action="store_true", help="print JSON")

    def run(args: argparse.Namespace) -> None:
        from resnets.describe.commands import models

        models(args.pattern, as_json=args.json)

    parser.set_defaults(run=run)


def _info(commands: Commands) -> None:
    parser = commands.add_parser(
        "info",
        help="describe a network: layers, cost, switches, a drawing of its unit",
        description="Describe a network: its layers, its cost, every switch, and a drawing of its unit.",
        usage="%(prog)s [options] NETWORK",
    )
    parser.add_argument("network", help="a name from 'resnets models', or a weights file of ours", metavar="NETWORK")
    parser.add_argument("--size", type=_size, help="of the images: 320, or 320x256 (height x width)")
    parser.add_argument("--weights", help="load this file into the network and tell what it is", metavar="FILE")
    parser.add_argument("--source", help="whose weights the file must hold", metavar="LIBRARY")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.describe.commands import info

        changes = network_changes(args)
        info(args.network, changes, size=args.size, weights=args.weights, source=args.source, as_json=args.json)

    parser.set_defaults(run=run)


COMMANDS = (_models, _info)

# --- running them -----------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is 0, 2 after a user's mistake, 130 after Ctrl-C, 141 into a closed pipe."""
    try:
        code = _dispatch(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()  # here, where a closed pipe can still be caught
        return code
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _let_go()
        return 141
    except OSError as error:  # a full disk is not a bug either
        _let_go()
        return _fail(f"{error}.")


def _dispatch(argv: list[str]) -> int:
    parser = Parser(prog="resnets", description="Deep residual networks of both papers.")
    parser.add_argument("--version", action="version", version=f"resnets {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for add in COMMANDS:
        add(commands)
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    if not argv[0].startswith("-") and argv[0] not in commands.choices:
        raise one_of("command", argv[0], commands.choices)
    try:
        args, unknown = parser.parse_known_args(argv)
    except SystemExit:  # after --help and --version
        return 0
    if unknown:
        raise _unexpected(unknown[0], commands.choices.get(argv[0], parser))
    args.run(args)
    return 0


def _unexpected(word: str, parser: argparse.ArgumentParser) -> UserError:
    if word.startswith("-"):
        known = re.findall(r"--[a-z][a-z-]+", parser.format_help())
        return one_of("option", word.partition("=")[0], sorted(set(known)))
    return UserError(f"unexpected argument {word!r} (see {parser.prog} --help)")


def _fail(message: str) -> int:
    from resnets.describe.tables import printable

    print("resnets:", printable(" ".join(message.split())), file=sys.stderr)
    return 2


def _let_go() -> None:
    """Send what nobody takes to nowhere, or Python complains when it flushes at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
