"""`resnets predict`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from resnets.cli.options import Command
from resnets.errors import UserError
from resnets.evaluation.options import PredictOptions
from resnets.text import say
from resnets.weights.pretrained import DEFAULT

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def predict(commands: Commands) -> None:
    command = Command(
        commands,
        "predict",
        PredictOptions,
        help="recognise what is in pictures, or find objects in them",
        description="Name the likeliest classes of pictures: files, or folders with all below them. A detector finds "
        "objects and their boxes. The exit code is 1 if one could not be read.",
        usage="%(prog)s [options] PICTURE ...",
    )
    command.add("pictures", nargs="+", help="picture files, or folders of them", metavar="PICTURE")
    command.add("--weights", help=f"a pretrained name, a file of weights, or a run ({DEFAULT})", metavar="WEIGHTS")
    form = command.parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", default="table", help="print JSON")
    form.add_argument("--csv", dest="form", action="store_const", const="csv", help="print CSV")
    command.add(
        "-o", "--out", type=Path, metavar="FILE",
        help="detectors: draw the boxes, of one picture to .png or .jpg, of several into a folder",
    )  # fmt: skip
    command.add("--cam", help="draw where the evidence for the first class lies: .png or .jpg", metavar="FILE")
    command.add_options()

    def run(args: argparse.Namespace) -> int:
        (given,) = command.read(args)
        return _predict(args, PredictOptions(**given))

    command.run(run)


def _predict(args: argparse.Namespace, options: PredictOptions) -> int:
    """Print predictions as they come; the exit code is 1 where a picture could not be read."""
    if args.cam is not None and not args.cam.lower().endswith((".png", ".jpg", ".jpeg")):
        raise UserError(f"--cam writes .png or .jpg, not {args.cam}.")
    from resnets.cli.prediction_output import WRITERS
    from resnets.evaluation.activation_map import draw_activation_map
    from resnets.evaluation.detection import DetectionPredictor
    from resnets.evaluation.predict import find_pictures, open_predictor
    from resnets.progress import Console

    predictor = open_predictor(args.weights, options)
    files = find_pictures(args.pictures)
    if isinstance(predictor, DetectionPredictor):
        from resnets.cli.object_output import detect_command

        return detect_command(predictor, files, args)
    if args.out is not None:
        raise UserError("-o draws the boxes of a detector; --cam draws what a classifier sees.")
    if args.cam is not None:
        _require_one(len(files), options)
    # A bar on the terminal takes over what is printed there; what goes to a file goes there all the same.
    writer = WRITERS[args.form](None if sys.stdout.isatty() else sys.stdout)
    faults = []
    with Console().task("recognising", len(files)) as advance:
        for found in predictor.predict(files):
            faults += [found] if found.fault else []
            writer.write(found)
            advance(1)
            if args.cam is not None and not found.fault:
                draw_activation_map(Path(args.cam), predictor.net, predictor.member, Path(found.file), found.labels[0])
                say(f"the evidence for {found.classes[0]} is drawn in {args.cam}")
    writer.close()
    for found in faults:
        say(found.fault)
    if faults:
        say(f"{len(faults)} of {len(files)} pictures could not be read.")
    return 1 if faults else 0


def _require_one(files: int, options: PredictOptions) -> None:
    if files != 1:
        raise UserError(f"--cam draws over one picture, and {files} were given.")
    if options.ten_crop or options.multi_scale:
        raise UserError("--cam shows the map of one crop; leave out --ten-crop and --multi-scale.")
