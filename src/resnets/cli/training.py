"""`train`, and what becomes of runs: `runs`, `plot`, `results`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.network_options import network_changes, network_options
from resnets.cli.options import Command, typed
from resnets.errors import UserError, shown
from resnets.options import SEEDS, parse_whole
from resnets.recipe import Recipe, default_recipe, recipe_of
from resnets.training.options import TrainOptions

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def train(commands: Commands) -> None:
    command = Command(
        commands,
        "train",
        TrainOptions,
        Recipe,
        help="train a network by a recipe; the same command again resumes",
        description="Train a network by a recipe. The same command again resumes the run, or shows its result.",
        usage="%(prog)s [options] NETWORK",
    )
    command.add("network", help="a name from 'resnets models'", metavar="NETWORK")
    runs = "train with this many seeds, from --seed on (1)"
    command.add("--runs", type=typed(parse_whole), default=1, help=runs, metavar="N")
    command.add_options()
    network_options(command.parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.data import is_folder
        from resnets.zoo import spec_of

        given, changes = command.read(args)
        options, network = TrainOptions(**given), network_changes(args)
        default, _ = default_recipe(options.data, is_folder(options.data), options.weights is not None)
        recipe_of(
            default if options.recipe == "auto" else options.recipe, **changes
        )  # refused before torch is imported
        spec_of(args.network, **network)
        if not 1 <= args.runs <= SEEDS[1] + 1 - options.seed:
            raise UserError(f"--runs must be at least 1, and seeds whole numbers of 64 bits, not {shown(args.runs)}.")
        from resnets.cli.commands.train import train_command

        train_command(args.network, range(options.seed, options.seed + args.runs), options, {**network, **changes})

    command.run(run)


def runs(commands: Commands) -> None:
    parser = commands.add_parser("runs", help="list runs: state, error, time left", description="List runs.")
    parser.add_argument("folder", nargs="?", default="runs", help="folder of the runs (runs)", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON")

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.commands.runs import runs_command

        return runs_command(args.folder, as_json=args.json)

    parser.set_defaults(run=run)


def plot(commands: Commands) -> None:
    parser = commands.add_parser(
        "plot",
        help="draw the curves of runs",
        description="Draw training loss (dashed) and error (solid) over iterations, several runs in one picture.",
    )
    parser.add_argument("runs", nargs="+", help="folders of runs", metavar="RUN")
    parser.add_argument("-o", "--out", default="curves.svg", help="the picture: .svg, .png or .pdf (curves.svg)")

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.commands.runs import plot_command

        return plot_command(args.runs, args.out)

    parser.set_defaults(run=run)


def results(commands: Commands) -> None:
    parser = commands.add_parser(
        "results",
        help="collect finished runs into one small JSON file",
        description="Collect finished runs that differ in the seed alone: errors, curves and provenance, as JSON.",
    )
    parser.add_argument("runs", nargs="+", help="folders of runs", metavar="RUN")
    parser.add_argument("-o", "--out", required=True, help="the file to write", metavar="FILE")

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.commands.runs import results_command

        results_command(args.runs, args.out)

    parser.set_defaults(run=run)
