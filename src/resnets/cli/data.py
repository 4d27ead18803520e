"""`resnets data fetch`, `data check` and `data prepare`."""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from resnets.cli.options import Command
from resnets.cli.parser import Parser
from resnets.errors import UserError
from resnets.options import SETS
from resnets.text import print_lines

if TYPE_CHECKING:
    from resnets.cli.parser import Commands

_NAMED = 20  # bad images


def data(commands: Commands) -> None:
    parser = commands.add_parser("data", help="get and check data", description="Get and check data.")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, required=True)
    for add in (_add_fetch, _add_check, _add_prepare):
        add(actions)


def _add_fetch(actions: Commands) -> None:
    command = Command(
        actions,
        "fetch",
        help="get a set of images into the cache",
        description="Get a set of images into the cache, from folders at hand, its home or a mirror, checked by hash.",
    )
    command.add("name", help=SETS, metavar="NAME")
    command.add("--data-dir", "--dir", help="a folder to look in besides the usual ones", metavar="DIR")
    command.run(_fetch)


def _fetch(args: argparse.Namespace) -> None:
    from resnets.data.fetch import dataset, fetch
    from resnets.progress import Console

    known = dataset(args.name)
    found = fetch(known, args.data_dir, Console())
    images = found.images
    print_lines(
        f"{known.title}: {len(images.train_images):,} training and {len(images.test_images):,} test images "
        f"of {images.num_classes} classes",
        f"found   {found.source}",
        f"cached  {found.cached or 'nowhere'}",
        f"hashes  pixels and labels match, sha256 {images.digest}",
    )


def _add_check(actions: Commands) -> None:
    command = Command(
        actions,
        "check",
        help="decode every image of a folder of class folders, or of pictures with boxes",
        description="Count classes and images, decode every image, and name those that cannot be, and boxes without "
        "area, outside of their picture or of unknown classes. The exit code is 1 if there are any, unless "
        "--bad-images skip.",
    )
    command.add("path", help="the folder, imagenet:DIR, voc:DIR, coco:JSON:DIR, yolo:DIR or csv:FILE", metavar="DIR")
    command.add(
        "--bad-images", default="error", help="images that cannot be decoded: error, or skip (error)", metavar="POLICY"
    )
    command.add("--sheet", type=Path, help="draw some pictures with their boxes: .png or .jpg", metavar="FILE")
    command.run(_check)


def _check(args: argparse.Namespace) -> int:
    """Print what is in a folder; 1 where an image is bad and the policy is `error`."""
    import numpy as np

    from resnets.data import parse_folder
    from resnets.data.bad_images import require_policy
    from resnets.data.check import check, parts
    from resnets.data.folder import open_folder
    from resnets.progress import Console
    from resnets.recipe import is_boxed

    require_policy(args.bad_images)
    if is_boxed(args.path):
        from resnets.cli.box_check import check_command

        return check_command(args.path, args.sheet, args.bad_images)
    if args.sheet is not None:
        raise UserError("--sheet draws boxes: name pictures with boxes, as voc:DIR.")
    folder, imagenet = parse_folder(args.path)
    data = open_folder(folder or args.path, imagenet)
    found = check(data, Console())
    for part, files in parts(data).items():
        some = found[part]
        each = np.bincount(files.labels, minlength=data.num_classes)
        print_lines(
            f"{part}: {some.count:,} images of {np.count_nonzero(each):,} classes, {each[each > 0].min():,} to "
            f"{each.max():,} a class; shorter sides {_range(some.sides)}"
        )
        for note, count in some.notes.most_common():
            print_lines(f"  {count:,} {note}")
        if some.bad:
            print_lines(f"  {len(some.bad):,} bad")
        for bad, fault in islice(some.bad.items(), _NAMED):
            print_lines(f"    {bad} {fault}")
        if len(some.bad) > _NAMED:
            print_lines(f"    and {len(some.bad) - _NAMED:,} more")
    print_lines(f"digest {data.digest}")
    return int(args.bad_images == "error" and any(some.bad for some in found.values()))


def _range(sides: Counter[int]) -> str:
    if not sides:
        return "unknown"
    middle = sorted(sides.elements())[sides.total() // 2]
    return f"{min(sides)} to {max(sides)} pixels, {middle} in the middle"


def _add_prepare(actions: Commands) -> None:
    command = Command(
        actions,
        "prepare",
        help="make class folders from ImageNet's archives",
        description="Make class folders from ImageNet's official archives, checked by what the devkit says. The same "
        "command again goes on where it was stopped.",
    )
    command.add("name", choices=["imagenet"], help="imagenet", metavar="NAME")
    command.add("--train", type=Path, help="ILSVRC2012_img_train.tar", metavar="TAR")
    command.add("--val", type=Path, help="ILSVRC2012_img_val.tar", metavar="TAR")
    command.add("--devkit", type=Path, required=True, help="ILSVRC2012_devkit_t12.tar.gz", metavar="TAR")
    command.add("--out", type=Path, required=True, help="the folder to make train and val in", metavar="DIR")
    command.run(_prepare)


def _prepare(args: argparse.Namespace) -> None:
    from resnets.data.prepare import prepare

    for part, count in prepare(args.train, args.val, args.devkit, args.out).items():
        print_lines(f"{part}: {count:,} images in {args.out / part}")
    print_lines(
        f"train on them by --data imagenet:{args.out}; `resnets data check imagenet:{args.out}` decodes them all"
    )
