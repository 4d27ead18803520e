"""`train`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from resnets.cli.options import (
    NAMED,
    bad_images_option,
    data_options,
    device_option,
    network_changes,
    network_options,
    training_engine_option,
)
from resnets.cli.parser import SEEDS, either, positive, seed
from resnets.engine import MODES
from resnets.errors import UserError, shown
from resnets.recipe import CHOICES, RECIPES, Recipe

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def train(commands: Commands) -> None:
    parser = commands.add_parser(
        "train",
        help="train a network by a recipe; the same command again resumes",
        description="Train a network by a recipe. The same command again resumes the run, or shows its result.",
        usage="%(prog)s [options] NETWORK",
    )
    parser.add_argument("network", help="a name from 'resnets models'", metavar="NETWORK")
    data_options(parser, "cifar10", f"{NAMED}, synthetic[:N], imagenet:DIR or a folder of class folders")
    parser.add_argument("--recipe", default="cifar-paper", help=f"one of {either(RECIPES)} (cifar-paper)")
    parser.add_argument("--seed", type=seed, default=0, help="of the weights, the order and the crops (0)", metavar="N")
    parser.add_argument("--runs", type=int, default=1, help="train with this many seeds, from --seed on", metavar="N")
    parser.add_argument("--out", default="runs", help="folder of the runs (runs)", metavar="DIR")
    parser.add_argument("--curve", action="store_true", help="test after every epoch, for the curve alone")
    parser.add_argument("--no-test", dest="test", action="store_false", help="leave the test set alone")
    device_option(parser)
    training_engine_option(parser)
    modes = (f"{name} ({meaning})" for name, meaning in MODES.items())
    parser.add_argument("--memory", default="auto", help=f"{either(modes)}, auto: the first that fits", metavar="MODE")
    parser.add_argument(
        "--checkpoint-every", type=float, default=60.0, help="seconds between checkpoints (60)", metavar="SECONDS"
    )
    parser.add_argument(
        "--log-every", type=positive, default=50, help="steps between lines of metrics (50)", metavar="N"
    )
    parser.add_argument(
        "--every",
        type=positive,
        default=0,
        help="measure the signal along the units every N steps; 'resnets analyze RUN' shows it",
        metavar="N",
    )
    parser.add_argument("--weights", help="to begin with: a file, a finished run or a pretrained net", metavar="FILE")
    bad_images_option(parser)
    parser.add_argument(
        "--decoders", type=positive, help="processes that decode images (by the device and the cores)", metavar="N"
    )
    parser.add_argument("--tensorboard", action="store_true", help="write event files too")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    recipe = parser.add_argument_group("recipe", "what differs from the named recipe")
    for field in dataclasses.fields(Recipe):
        if field.name != "name":
            settings: dict[str, Any] = {"default": None, "help": field.metadata["help"]}
            if field.type == "bool":
                settings["action"] = argparse.BooleanOptionalAction
            else:
                settings["type"] = {"int": int, "float": float}.get(str(field.type), str)
                settings["metavar"] = {"int": "N", "float": "X"}.get(str(field.type), "TEXT")
                if field.name in CHOICES:
                    settings["help"] += f": {either(CHOICES[field.name])}"
            recipe.add_argument(f"--{field.name.replace('_', '-')}", **settings)
    network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.recipe import recipe_of
        from resnets.zoo import spec_of

        fields = [field.name for field in dataclasses.fields(Recipe) if field.name != "name"]
        changes = {name: value for name in fields if (value := getattr(args, name)) is not None}
        recipe, network = recipe_of(args.recipe, **changes), network_changes(args)
        spec_of(args.network, **network)  # a mistake is told before torch is imported
        if not 1 <= args.runs <= SEEDS[1] + 1 - args.seed:
            raise UserError(f"--runs must be at least 1, and seeds whole numbers of 64 bits, not {shown(args.runs)}.")
        from resnets.cli.commands.train import train_command

        train_command(
            args.network,
            seeds=range(args.seed, args.seed + args.runs),
            data=args.data,
            data_dir=args.dir,
            recipe=recipe,
            network=network,
            **{name: getattr(args, name) for name in _TRAIN},
        )

    parser.set_defaults(run=run)


_TRAIN = ("out", "curve", "test", "device", "engine", "memory", "checkpoint_every", "log_every", "every",
          "tensorboard", "quiet", "weights", "bad_images", "decoders")  # fmt: skip
