"""`resnets train`: one run, or several with `--vary`, `--seeds` or `--runs`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.chain import Chain
from resnets.cli.detection_output import print_detection
from resnets.cli.options import NETWORK_FIELDS, Command, write_config
from resnets.cli.sweep import add_sweep_options, sweep_command
from resnets.detector_spec import DetectorOptions, detector_of, is_detector
from resnets.errors import UserError
from resnets.experiments.options import SweepOptions
from resnets.options import fields_of
from resnets.recipe import Recipe, default_recipe, recipe_of
from resnets.spec import Spec
from resnets.text import print_lines, say
from resnets.training.options import TrainOptions
from resnets.zoo import NetworkOptions, spec_of

if TYPE_CHECKING:
    from resnets.cli.parser import Commands
    from resnets.runs import Run


_COMMON = (  # options of `train --help`
    *("data", "recipe", "weights", "seed", "out", "curve", "device", "threads"),
    *("length", "batch", "lr", "weight_decay", "validation"),
    *NETWORK_FIELDS,
)


def train(commands: Commands) -> None:
    command = Command(
        commands,
        "train",
        TrainOptions,
        Recipe,
        NetworkOptions,
        DetectorOptions,
        SweepOptions,
        help="train a network by a recipe; the same command again resumes",
        description="Train a network by a recipe. The same command again resumes the run, or shows its result.",
        usage="%(prog)s [options] NETWORK",
    )
    command.add("network", help="a name from 'resnets models'; faster_rcnn_NETWORK is a detector", metavar="NETWORK")
    add_sweep_options(command.parser)
    command.add_options(hidden=tuple(fields_of(SweepOptions)), common=_COMMON)
    command.add(
        "--save-config",
        help="write these options as TOML; with --config FILE they give the same run again",
        metavar="FILE",
    )

    def run(args: argparse.Namespace) -> int:
        from resnets.data import parse_folder

        given, changes, network, detector, several = command.read(args)
        options, sweep = TrainOptions(**given), SweepOptions(**several)
        is_folder = parse_folder(options.data)[0] is not None
        default, _ = default_recipe(options.data, is_folder, options.weights is not None, args.network)
        recipe = default if options.recipe == "auto" else options.recipe
        recipe_of(recipe, **changes)  # refused before torch is imported
        if is_detector(args.network):
            detector_of(args.network, network=network, **detector)
        else:
            spec_of(args.network, **network)
        if args.save_config:
            said = {**given, "recipe": recipe, **changes, **network, **detector, **several}
            write_config(Path(args.save_config), f"resnets train {args.network} --config {args.save_config}", said)
        network |= detector
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

    result, identity = run.result or {}, run.identity
    what = f"{identity.network.name} on {identity.data}, seed {identity.seed}, {result['steps']:,} iterations"
    if result.get("task") == "detection":
        return print_detection(run, what)
    for split in ("validation", "test"):
        if split in result:
            print_lines(f"{what}: {split} {_describe_error(result[split])}")
            if mirrored := result[split].get("mirrored"):
                print_lines(f"the mean of each image and its mirror image: {split} {_describe_error(mirrored)}")
            if shifted := result[split].get("shifted"):
                print_lines(f"with these also moved both ways: {split} {_describe_error(shifted)}")
    network = identity.network
    if "test" in result and isinstance(network, Spec | Chain) and (theirs := quote_paper(network, identity.data)):
        print_lines(theirs)
    print_lines(f"run: {run.path}")
    try:
        print_lines(f"curves: {run.picture if run.picture.exists() else draw([run], run.picture)}")
    except UserError as error:
        say(f"no curves: {error}")
