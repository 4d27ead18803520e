"""`models` and `info`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.network_options import network_changes, network_options
from resnets.cli.parser import positive, size_of

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def models(commands: Commands) -> None:
    parser = commands.add_parser(
        "models",
        help="list the named networks",
        description="List the named networks with their cost, and those that come trained inside the package.",
    )
    parser.add_argument("pattern", nargs="?", default="*", help="a shell pattern: 'preresnet*'", metavar="PATTERN")
    parser.add_argument("--json", action="store_true", help="print JSON")

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.commands.describe import models

        models(args.pattern, as_json=args.json)

    parser.set_defaults(run=run)


def info(commands: Commands) -> None:
    parser = commands.add_parser(
        "info",
        help="describe a network: layers, cost, switches, a drawing of its unit",
        description="Describe a network: its layers, its cost, every switch, and a drawing of its unit.",
        usage="%(prog)s [options] NETWORK",
    )
    parser.add_argument("network", help="a name from 'resnets models', or a weights file of ours", metavar="NETWORK")
    parser.add_argument("--size", type=size_of, help="of the images: 320, or 320x256 (height x width)")
    parser.add_argument("--weights", help="load this file into the network and tell what it is", metavar="FILE")
    parser.add_argument("--source", help="whose weights the file must hold", metavar="LIBRARY")
    parser.add_argument("--memory", action="store_true", help="how much memory training takes in each mode")
    parser.add_argument("--engine", action="store_true", help="how it would be trained here, and why")
    parser.add_argument("--batch", type=positive, help="images in a batch, for --memory and --engine", metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.commands.describe import info

        given = {name: getattr(args, name) for name in ("size", "weights", "source", "memory", "engine", "batch")}
        info(args.network, network_changes(args), **given, as_json=args.json)

    parser.set_defaults(run=run)
