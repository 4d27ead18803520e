"""`resnets train`: one run, or several with `--vary`, `--seeds` or `--runs`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resnets.cli.options import Command
from resnets.cli.sweep import add_sweep_options, sweep_command
from resnets.errors import UserError
from resnets.experiments.options import SweepOptions
from resnets.options import fields_of
from resnets.recipe import Recipe, default_recipe, recipe_of
from resnets.text import print_lines, say
from resnets.training.options import TrainOptions
from resnets.zoo import NetworkOptions, spec_of

if TYPE_CHECKING:
    from resnets.cli.parser import Commands
    from resnets.runs import Run


def train(commands: Commands) -> None:
    command = Command(
        commands,
        "train",
        TrainOptions,
        Recipe,
        NetworkOptions,
        SweepOptions,
        help="train a network by a recipe; the same command again resumes",
        description="Train a network by a recipe. The same command again resumes the run, or shows its result.",
        usage="%(prog)s [options] NETWORK",
    )
    command.add("network", help="a name from 'resnets models'", metavar="NETWORK")
    add_sweep_options(command.parser)
    command.add_options(hidden=tuple(fields_of(SweepOptions)))

    def run(args: argparse.Namespace) -> int:
        from resnets.data import parse_folder

        given, changes, network, several = command.read(args)
        options, sweep = TrainOptions(**given), SweepOptions(**several)
        is_folder = parse_folder(options.data)[0] is not None
        default, _ = default_recipe(options.data, is_folder, options.weights is not None, args.network)
        recipe_of(
            default if options.recipe == "auto" else options.recipe, **changes
        )  # refused before torch is imported
        spec_of(args.network, **network)
        if sweep.vary or sweep.seeds or sweep.runs > 1:
            return sweep_command(args.network, sweep, {**options.to_dict(), **changes, "network": network})
        from resnets.training.session import train

        done = train(args.network, options=options, **changes, **network)
        if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started, one prints
            print_result(done)
        return 0

    command.run(run)


def _describe_error(score: Mapping[str, Any]) -> str:
    low, high = score["interval"]
    return f"error {score['error']:.2f} % (95 % interval {low:.2f} to {high:.2f})"


def print_result(run: Run) -> None:
    """The scores of a finished run, and its curves."""
    from resnets.papers.numbers import quote_paper
    from resnets.report.curves import draw
    from resnets.runs import ModuleKey

    result, identity = run.result or {}, run.identity
    what = f"{identity.network.name} on {identity.data}, seed {identity.seed}, {result['steps']:,} iterations"
    for split in ("validation", "test"):
        if split in result:
            print_lines(f"{what}: {split} {_describe_error(result[split])}")
            if mirrored := result[split].get("mirrored"):
                print_lines(f"the mean of each image and its mirror image: {split} {_describe_error(mirrored)}")
    if (
        "test" in result
        and not isinstance(identity.network, ModuleKey)
        and (theirs := quote_paper(identity.network, identity.data))
    ):
        print_lines(theirs)
    print_lines(f"run: {run.path}")
    try:
        print_lines(f"curves: {run.picture if run.picture.exists() else draw([run], run.picture)}")
    except UserError as error:
        say(f"no curves: {error}")
