"""`data fetch`, `data check` and `data prepare`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.network_options import NAMED, bad_images_option
from resnets.cli.parser import Parser

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def data(commands: Commands) -> None:
    parser = commands.add_parser("data", help="get and check data", description="Get and check data.")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, required=True)
    fetch = actions.add_parser(
        "fetch",
        help="get a set of images into the cache",
        description="Get a set of images into the cache, from folders at hand, its home or a mirror, checked by hash.",
    )
    fetch.add_argument("name", help=NAMED, metavar="NAME")
    fetch.add_argument("--dir", help="a folder to look in besides the usual ones", metavar="DIR")

    def run(args: argparse.Namespace) -> None:
        from resnets.data.fetch import fetch_command

        fetch_command(args.name, args.dir)

    fetch.set_defaults(run=run)
    _check(actions)
    _prepare(actions)


def _check(actions: Commands) -> None:
    parser = actions.add_parser(
        "check",
        help="decode every image of a folder of class folders",
        description="Count classes and images, decode every image, and name those that cannot be. The exit code is 1 "
        "if there are any, unless --bad-images skip.",
    )
    parser.add_argument("path", help="the folder, or imagenet:DIR", metavar="DIR")
    bad_images_option(parser)

    def run(args: argparse.Namespace) -> int:
        from resnets.data.check import check_command

        return check_command(args.path, args.bad_images)

    parser.set_defaults(run=run)


def _prepare(actions: Commands) -> None:
    parser = actions.add_parser(
        "prepare",
        help="make class folders from ImageNet's archives",
        description="Make class folders from ImageNet's official archives, checked by what the devkit says. The same "
        "command again goes on where it was stopped.",
    )
    parser.add_argument("name", choices=["imagenet"], help="imagenet", metavar="NAME")
    parser.add_argument("--train", help="ILSVRC2012_img_train.tar", metavar="TAR")
    parser.add_argument("--val", help="ILSVRC2012_img_val.tar", metavar="TAR")
    parser.add_argument("--devkit", required=True, help="ILSVRC2012_devkit_t12.tar.gz", metavar="TAR")
    parser.add_argument("--out", required=True, help="the folder to make train and val in", metavar="DIR")

    def run(args: argparse.Namespace) -> None:
        from resnets.data.prepare import prepare_command

        prepare_command(args.train, args.val, args.devkit, args.out)

    parser.set_defaults(run=run)
