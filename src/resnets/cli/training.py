"""`train`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.options import Command, typed
from resnets.errors import UserError, shown
from resnets.options import SEEDS, parse_whole
from resnets.recipe import Recipe, recipe_of
from resnets.training.options import TrainOptions
from resnets.zoo import NetworkOptions, spec_of

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def train(commands: Commands) -> None:
    command = Command(
        commands,
        "train",
        TrainOptions,
        Recipe,
        NetworkOptions,
        help="train a network by a recipe; the same command again resumes",
        description="Train a network by a recipe. The same command again resumes the run, or shows its result.",
        usage="%(prog)s [options] NETWORK",
    )
    command.add("network", help="a name from 'resnets models'", metavar="NETWORK")
    runs = "train with this many seeds, from --seed on (1)"
    command.add("--runs", type=typed(parse_whole), default=1, help=runs, metavar="N")
    command.add_options()

    def run(args: argparse.Namespace) -> None:
        given, changes, network = command.read(args)
        options = TrainOptions(**given)
        if options.recipe != "auto":
            recipe_of(options.recipe, **changes)  # mistakes are found before torch is imported
        spec_of(args.network, **network)
        if not 1 <= args.runs <= SEEDS[1] + 1 - options.seed:
            raise UserError(f"--runs must be at least 1, and seeds whole numbers of 64 bits, not {shown(args.runs)}.")
        from resnets.cli.commands.train import train_command

        train_command(args.network, range(options.seed, options.seed + args.runs), options, {**network, **changes})

    command.run(run)
