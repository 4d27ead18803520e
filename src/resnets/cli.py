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
from resnets.engine import MODES
from resnets.errors import UserError, one_of
from resnets.interop.pretrained import DEFAULT
from resnets.spec import KERNELS, ORDERS, RESIZES, SHARES, SHORTCUTS, STEMS, STRIDES, Spec
from resnets.training.recipe import CHOICES, RECIPES, Recipe

if TYPE_CHECKING:
    from resnets.evaluate.protocol import Protocol

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


def _reals(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers with commas between them") from None


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
    parser = commands.add_parser(
        "models",
        help="list the named networks",
        description="List the named networks with their cost, and those that come trained inside the package.",
    )
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
    parser.add_argument("--memory", action="store_true", help="how much memory training takes in each mode")
    parser.add_argument("--engine", action="store_true", help="how it would be trained here, and why")
    parser.add_argument("--batch", type=_positive, help="images in a batch, for --memory and --engine", metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.describe.commands import info

        given = {name: getattr(args, name) for name in ("size", "weights", "source", "memory", "engine", "batch")}
        info(args.network, network_changes(args), **given, as_json=args.json)

    parser.set_defaults(run=run)


def _train(commands: Commands) -> None:
    parser = commands.add_parser(
        "train",
        help="train a network by a recipe; the same command again resumes",
        description="Train a network by a recipe. The same command again resumes the run, or shows its result.",
        usage="%(prog)s [options] NETWORK",
    )
    parser.add_argument("network", help="a name from 'resnets models'", metavar="NETWORK")
    _data_options(parser, "cifar10", f"{_NAMED}, synthetic[:N], imagenet:DIR or a folder of class folders")
    parser.add_argument("--recipe", default="cifar-paper", help=f"one of {_either(RECIPES)} (cifar-paper)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights, the order and the crops (0)", metavar="N")
    parser.add_argument("--runs", type=int, default=1, help="train with this many seeds, from --seed on", metavar="N")
    parser.add_argument("--out", default="runs", help="folder of the runs (runs)", metavar="DIR")
    parser.add_argument("--curve", action="store_true", help="test after every epoch, for the curve alone")
    parser.add_argument("--no-test", dest="test", action="store_false", help="leave the test set alone")
    _device_option(parser)
    parser.add_argument("--engine", default="auto", help="auto, or plain: PyTorch as it is (auto)", metavar="ENGINE")
    modes = (f"{name} ({meaning})" for name, meaning in MODES.items())
    parser.add_argument("--memory", default="auto", help=f"{_either(modes)}, auto: the first that fits", metavar="MODE")
    parser.add_argument(
        "--checkpoint-every", type=float, default=60.0, help="seconds between checkpoints (60)", metavar="SECONDS"
    )
    parser.add_argument(
        "--log-every", type=_positive, default=50, help="steps between lines of metrics (50)", metavar="N"
    )
    parser.add_argument(
        "--every",
        type=_positive,
        default=0,
        help="measure the signal along the units every N steps; 'resnets analyze RUN' shows it",
        metavar="N",
    )
    parser.add_argument("--weights", help="to begin with: a file, a finished run or a pretrained net", metavar="FILE")
    _bad_images_option(parser)
    parser.add_argument(
        "--decoders", type=_positive, help="processes that decode images (by the device and the cores)", metavar="N"
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
                    settings["help"] += f": {_either(CHOICES[field.name])}"
            recipe.add_argument(f"--{field.name.replace('_', '-')}", **settings)
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.training.recipe import recipe_of
        from resnets.zoo import spec_of

        fields = [field.name for field in dataclasses.fields(Recipe) if field.name != "name"]
        changes = {name: value for name in fields if (value := getattr(args, name)) is not None}
        recipe, network = recipe_of(args.recipe, **changes), network_changes(args)
        spec_of(args.network, **network)  # a mistake is told before torch is imported
        if args.runs < 1:
            raise UserError(f"--runs must be at least 1, not {args.runs}.")
        from resnets.training.commands import train_command

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


def _eval(commands: Commands) -> None:
    parser = commands.add_parser(
        "eval",
        help="the test error of a run or of a file of weights",
        description="The test error of a run, of a weights file of ours, or of another library's with --network; of "
        "several of them as an ensemble, whose answers are averaged. Pictures are seen as the file says, or by one of "
        "the papers' protocols.",
        usage="%(prog)s [options] RUN_OR_WEIGHTS ...",
    )
    parser.add_argument("paths", nargs="+", help="the folder of a run, or a file of weights", metavar="RUN_OR_WEIGHTS")
    _data_options(parser, None)
    _bad_images_option(parser)
    _view_options(parser)
    parser.add_argument("--network", help="the network in another library's file: resnet20", metavar="NAME")
    parser.add_argument("--source", default="auto", help="whose weights the file must hold", metavar="LIBRARY")
    parser.add_argument(
        "--normalize", help="channel or pixel statistics of the data instead of the file's", metavar="HOW"
    )
    parser.add_argument(
        "--precise-bn", type=int, default=0, help="take BN's statistics anew from N training images", metavar="N"
    )
    _device_option(parser)
    _engine_option(parser)
    parser.add_argument("-o", "--out", help="write the result as JSON, with where it came from", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.evaluate.commands import eval_command

        eval_command(
            args.paths,
            data=args.data,
            data_dir=args.dir,
            network=args.network,
            changes=network_changes(args),
            source=args.source,
            per=args.normalize,
            precise=args.precise_bn,
            protocol=_protocol(args),
            device=args.device,
            engine=args.engine,
            out=args.out,
            as_json=args.json,
            bad_images=args.bad_images,
        )

    parser.set_defaults(run=run)


def _predict(commands: Commands) -> None:
    parser = commands.add_parser(
        "predict",
        help="recognise pictures",
        description="Recognise pictures, and all pictures in folders: the likeliest classes with their probabilities. "
        "Pictures that cannot be read are listed at the end, and the exit code is then 1.",
        usage="%(prog)s [options] PICTURE_OR_FOLDER ...",
    )
    parser.add_argument("paths", nargs="+", help="pictures, and folders of pictures", metavar="PICTURE_OR_FOLDER")
    parser.add_argument(
        "--weights", help=f"a file of weights that says all about itself, or a run ({DEFAULT})", metavar="FILE"
    )
    parser.add_argument("--top", type=_positive, default=5, help="so many classes of each (5)", metavar="N")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", default="table", help="print JSON")
    form.add_argument("--csv", dest="form", action="store_const", const="csv", help="print CSV")
    parser.add_argument("--cam", help="draw where the evidence for the first class lies: .png or .jpg", metavar="FILE")
    _device_option(parser)
    _engine_option(parser)
    _view_options(parser)

    def run(args: argparse.Namespace) -> int:
        from resnets.use.predict import predict_command

        given = {name: getattr(args, name) for name in ("weights", "top", "form", "cam", "device", "engine")}
        return predict_command(args.paths, protocol=_protocol(args), **given)

    parser.set_defaults(run=run)


def _export(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a network for other programs: ONNX, torch.export",
        description="Write a network for other programs, with batch and image size left open, and classes and "
        "preprocessing told in the file. It is written only if its scores are PyTorch's.",
        usage="%(prog)s [options] NETWORK_OR_WEIGHTS",
    )
    parser.add_argument("what", help="a file of weights, a run, or a network's name", metavar="NETWORK_OR_WEIGHTS")
    parser.add_argument("--format", default="onnx", help="onnx or torch-export (onnx)")
    parser.add_argument("-o", "--out", help="the file to write (NETWORK.onnx or NETWORK.pt2)", metavar="FILE")
    parser.add_argument("--fold", action="store_true", help="fold BN into the convolutions: smaller and faster")
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.use.export import export_command

        given = {name: getattr(args, name) for name in ("format", "out", "fold")}
        export_command(args.what, changes=network_changes(args), **given)

    parser.set_defaults(run=run)


def _import(commands: Commands) -> None:
    parser = commands.add_parser(
        "import",
        help="turn another library's weights into a file that says all about itself",
        description="Turn another library's weights into a safetensors file with the network, the classes' names, the "
        "preprocessing and the origin inside, so that eval, predict and export need no further words. Weights of "
        "torchvision, timm and akamaster, and Keras's ResNet-50 of 2015 as a package of TensorFlow.js.",
        usage="%(prog)s [options] SOURCE -o FILE",
    )
    parser.add_argument("source", help="a file of weights; a package's folder, .tgz or model.json", metavar="SOURCE")
    parser.add_argument("-o", "--out", required=True, help="the file to write", metavar="FILE")
    parser.add_argument("--network", help="the network in another library's file: resnet50", metavar="NAME")
    parser.add_argument("--source", dest="library", default="auto", help="whose weights it must be", metavar="LIBRARY")
    parser.add_argument(
        "--classes", help='JSON with the classes\' names: a list, or {"0": [FOLDER, NAME], ...}', metavar="FILE"
    )
    parser.add_argument(
        "--mean", type=_reals, help="of R, G, B in 0 to 1, as trained: 0.485,0.456,0.406", metavar="X,X,X"
    )
    parser.add_argument("--std", type=_reals, help="of R, G, B, as trained: 0.229,0.224,0.225", metavar="X,X,X")
    parser.add_argument("--crop", help="the crop and the shorter side to test with: 224@256", metavar="N@M")
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.use.importing import import_command

        given = {name: getattr(args, name) for name in ("network", "library", "classes", "mean", "std", "crop")}
        import_command(args.source, args.out, changes=network_changes(args), **given)

    parser.set_defaults(run=run)


def _analyze(commands: Commands) -> None:
    parser = commands.add_parser(
        "analyze",
        help="measure how signals and gradients travel through the units",
        description="Measure how signals and gradients travel through the units of networks, of weights files of ours "
        "and of runs: equations (4), (5), (7) and (8) of v2. Networks and statistics stay as they are.",
        usage="%(prog)s [options] NETWORK_OR_RUN ...",
    )
    parser.add_argument(
        "subjects", nargs="+", help="a name from 'resnets models', a file, or a run's folder", metavar="NETWORK_OR_RUN"
    )
    _data_options(parser, None)
    parser.add_argument("--batch", type=_positive, default=32, help="images at a time (32)", metavar="N")
    parser.add_argument("--batches", type=_positive, default=1, help="to take means over (1)", metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of fresh weights and of the images (0)", metavar="N")
    parser.add_argument(
        "--statistics", default="batch", help="of BN: batch, as in training, or running (batch)", metavar="WHICH"
    )
    parser.add_argument(
        "--vary", help="a curve for each value: order=original,full_preact; also shortcut, resize", metavar="FIELD=A,B"
    )
    parser.add_argument("--along", action="store_true", help="of runs also the start and every checkpoint")
    parser.add_argument("--out", help="write propagation.json, .svg and .png there", metavar="DIR")
    _device_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.describe.analyze import analyze_command

        given = {name: getattr(args, name) for name in _ANALYZE}
        analyze_command(args.subjects, changes=network_changes(args), data_dir=args.dir, as_json=args.json, **given)

    parser.set_defaults(run=run)


_ANALYZE = ("vary", "along", "data", "batch", "batches", "seed", "statistics", "device", "out")


def _runs(commands: Commands) -> None:
    parser = commands.add_parser("runs", help="list runs: state, error, time left", description="List runs.")
    parser.add_argument("folder", nargs="?", default="runs", help="folder of the runs (runs)", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON")

    def run(args: argparse.Namespace) -> None:
        from resnets.report.commands import runs_command

        runs_command(args.folder, as_json=args.json)

    parser.set_defaults(run=run)


def _plot(commands: Commands) -> None:
    parser = commands.add_parser(
        "plot",
        help="draw the curves of runs",
        description="Draw training loss (dashed) and error (solid) over iterations, several runs in one picture.",
    )
    parser.add_argument("runs", nargs="+", help="folders of runs", metavar="RUN")
    parser.add_argument("-o", "--out", default="curves.svg", help="the picture: .svg, .png or .pdf (curves.svg)")

    def run(args: argparse.Namespace) -> None:
        from resnets.report.commands import plot_command

        plot_command(args.runs, args.out)

    parser.set_defaults(run=run)


def _results(commands: Commands) -> None:
    parser = commands.add_parser(
        "results",
        help="collect finished runs into one small JSON file",
        description="Collect finished runs that differ in the seed alone: errors, curves and provenance, as JSON.",
    )
    parser.add_argument("runs", nargs="+", help="folders of runs", metavar="RUN")
    parser.add_argument("-o", "--out", required=True, help="the file to write", metavar="FILE")

    def run(args: argparse.Namespace) -> None:
        from resnets.report.commands import results_command

        results_command(args.runs, args.out)

    parser.set_defaults(run=run)


def _report(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="the papers' numbers and ours as one page",
        description="Put the papers' tables and figures, our results and where they come from into one HTML file that "
        "needs no network.",
    )
    parser.add_argument(
        "results",
        nargs="*",
        help="files, or folders with all below them, that reproduce, analyze --out or results wrote (results)",
        metavar="RESULTS",
    )
    parser.add_argument("-o", "--out", default="report.html", help="the page (report.html)", metavar="FILE")

    def run(args: argparse.Namespace) -> None:
        from resnets.report.commands import report_command

        report_command(args.results or ["results"], args.out)

    parser.set_defaults(run=run)


def _data(commands: Commands) -> None:
    parser = commands.add_parser("data", help="get and check data", description="Get and check data.")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, required=True)
    fetch = actions.add_parser(
        "fetch",
        help="get a set of images into the cache",
        description="Get a set of images into the cache, from folders at hand, its home or a mirror, checked by hash.",
    )
    fetch.add_argument("name", help=_NAMED, metavar="NAME")
    fetch.add_argument("--dir", help="a folder to look in besides the usual ones", metavar="DIR")

    def run(args: argparse.Namespace) -> None:
        from resnets.data.fetch import fetch_command

        fetch_command(args.name, args.dir)

    fetch.set_defaults(run=run)
    _data_check(actions)
    _data_prepare(actions)


def _data_check(actions: Commands) -> None:
    parser = actions.add_parser(
        "check",
        help="decode every image of a folder of class folders",
        description="Count classes and images, decode every image, and name those that cannot be. The exit code is 1 "
        "if there are any, unless --bad-images skip.",
    )
    parser.add_argument("path", help="the folder, or imagenet:DIR", metavar="DIR")
    _bad_images_option(parser)

    def run(args: argparse.Namespace) -> int:
        from resnets.data.check import check_command

        return check_command(args.path, args.bad_images)

    parser.set_defaults(run=run)


def _data_prepare(actions: Commands) -> None:
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


def _reproduce(commands: Commands) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="run the papers' tables and figures, at a budget",
        description="Run the papers' tables and figures and put our numbers beside theirs. The plan and its price come "
        "first. The same command again goes on where it was stopped and skips what is finished.",
        usage="%(prog)s [options] EXPERIMENT ...",
    )
    parser.add_argument("names", nargs="*", help="table1, figure3 ..., or all", metavar="EXPERIMENT")
    parser.add_argument("--list", action="store_true", help="describe the experiments and the budgets")
    parser.add_argument("--budget", default="hour", help="paper, day, hour or smoke (hour)")
    parser.add_argument("--seeds", type=int, help="runs of each row, instead of the budget's", metavar="N")
    parser.add_argument("--rows", help="only rows whose name fits a shell pattern: '*gate*'", metavar="PATTERN")
    parser.add_argument("--shard", help="one slice of the rows: 3/16, the third of sixteen", metavar="I/N")
    parser.add_argument("--out", default="runs", help="folder of the runs (runs)", metavar="DIR")
    parser.add_argument("--results", default="results", help="folder of the results (results)", metavar="DIR")
    parser.add_argument("--data-dir", help="a folder to look for CIFAR in", metavar="DIR")
    parser.add_argument("--imagenet", help="ImageNet's folder, with train and val; its rows wait for it", metavar="DIR")
    _device_option(parser)
    parser.add_argument("--engine", default="auto", help="auto, or plain: PyTorch as it is (auto)", metavar="ENGINE")
    parser.add_argument("--memory", default="auto", help="fast, lean, min (auto: the first that fits)", metavar="MODE")
    parser.add_argument("--dry-run", action="store_true", help="plan and price, and run nothing")

    def run(args: argparse.Namespace) -> None:
        from resnets.reproduce.commands import list_command, reproduce_command

        if args.list:
            list_command()
            return
        given = ("budget", "seeds", "rows", "shard", "out", "data_dir", "imagenet", "device", "engine", "memory")
        options = {name: getattr(args, name) for name in (*given, "dry_run")}
        reproduce_command(args.names, results_folder=args.results, **options)

    parser.set_defaults(run=run)


_NAMED = "cifar10, cifar100, fashion-mnist"  # the names of `data.sets`, which would import numpy here


def _data_options(
    parser: argparse.ArgumentParser, default: str | None, known: str = f"{_NAMED} or synthetic[:N]"
) -> None:
    shown = default or "what it was trained on"
    parser.add_argument("--data", default=default, help=f"{known} ({shown})", metavar="DATA")
    parser.add_argument("--dir", help="a folder to look for the data in", metavar="DIR")


def _bad_images_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bad-images", default="error", help="images that cannot be decoded: error, or skip (error)", metavar="POLICY"
    )


def _view_options(parser: argparse.ArgumentParser) -> None:
    views = parser.add_argument_group("protocol", "the views of a picture over which answers are averaged")
    views.add_argument("--crop", help="a centre crop and the shorter side it is from: 224@256, 320@320", metavar="N@M")
    views.add_argument("--ten-crop", action="store_true", help="centre and corners, each also mirrored")
    scales = "whole pictures with these shorter sides: 224,256,384,480,640"
    views.add_argument("--multi-scale", type=_numbers, help=scales, metavar="N,N")
    views.add_argument("--average", default="softmax", help="of softmax, or of logits (softmax)", metavar="WHAT")


def _protocol(args: argparse.Namespace) -> Protocol:
    """What `_view_options` were given."""
    from resnets.evaluate.protocol import Protocol

    return Protocol(args.crop, args.ten_crop, args.multi_scale, args.average)


def _engine_option(parser: argparse.ArgumentParser) -> None:
    engines = "plain, frozen, onnxruntime or openvino (auto: frozen on a CPU, else plain)"
    parser.add_argument("--engine", default="auto", help=engines)


def _device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps ... (auto: an accelerator if there is one)")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


COMMANDS = (
    _models,
    _info,
    _train,
    _eval,
    _predict,
    _import,
    _export,
    _analyze,
    _runs,
    _plot,
    _results,
    _reproduce,
    _report,
    _data,
)

# --- running them -----------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is 0, 1 if a part could not be done, 2 after a user's mistake, 130 after Ctrl-C,
    141 into a closed pipe."""
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
    return args.run(args) or 0


def _unexpected(word: str, parser: argparse.ArgumentParser) -> UserError:
    if word.startswith("-"):
        known = re.findall(r"--[a-z][a-z-]+", parser.format_help())
        return one_of("option", word.partition("=")[0], sorted(set(known)))
    return UserError(f"unexpected argument {word!r} (see {parser.prog} --help)")


def _fail(message: str) -> int:
    from resnets.text import printable

    print("resnets:", printable(" ".join(message.split())), file=sys.stderr)
    return 2


def _let_go() -> None:
    """Send what nobody takes to nowhere, or Python complains when it flushes at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
