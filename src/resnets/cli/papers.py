"""What the papers tell, measured here: `analyze`, `reproduce`, `report`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.options import Command, data_options, device_option, network_changes, network_options
from resnets.cli.parser import positive, seed

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def analyze(commands: Commands) -> None:
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
    data_options(parser, None)
    parser.add_argument("--batch", type=positive, default=32, help="images at a time (32)", metavar="N")
    parser.add_argument("--batches", type=positive, default=1, help="to take means over (1)", metavar="N")
    parser.add_argument("--seed", type=seed, default=0, help="of fresh weights and of the images (0)", metavar="N")
    parser.add_argument(
        "--statistics", default="batch", help="of BN: batch, as in training, or running (batch)", metavar="WHICH"
    )
    parser.add_argument(
        "--vary", help="a curve for each value: order=original,full_preact; also shortcut, resize", metavar="FIELD=A,B"
    )
    parser.add_argument("--along", action="store_true", help="of runs also the start and every checkpoint")
    parser.add_argument("--out", help="write propagation.json, .svg and .png there", metavar="DIR")
    device_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.commands.analyze import analyze_command

        given = {name: getattr(args, name) for name in _ANALYZE}
        analyze_command(args.subjects, changes=network_changes(args), data_dir=args.dir, as_json=args.json, **given)

    parser.set_defaults(run=run)


_ANALYZE = ("vary", "along", "data", "batch", "batches", "seed", "statistics", "device", "out")


def reproduce(commands: Commands) -> None:
    from resnets.experiments.options import ReproduceOptions

    command = Command(
        commands,
        "reproduce",
        ReproduceOptions,
        help="run the papers' tables and figures, at a budget",
        description="Run the papers' tables and figures and put our numbers beside theirs. The plan and the time that "
        "it takes come first. The same command again goes on where it was stopped and skips what is finished.",
        usage="%(prog)s [options] EXPERIMENT ...",
    )
    command.add("names", nargs="*", help="table1, figure3 ..., or all", metavar="EXPERIMENT")
    command.add("--list", action="store_true", help="describe the experiments and the budgets")
    command.add_options()

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.commands.reproduce import list_command, reproduce_command

        if args.list:
            list_command()
            return 0
        (given,) = command.read(args)
        return reproduce_command(args.names, ReproduceOptions(**given))

    command.run(run)


def report(commands: Commands) -> None:
    command = Command(
        commands,
        "report",
        help="the papers' numbers and ours as one page",
        description="Put the papers' tables and figures, our results and where they come from into one HTML file that "
        "needs no network.",
    )
    command.add(
        "results",
        nargs="*",
        help="files, or folders with all below them, that reproduce, analyze --out or results wrote (results)",
        metavar="RESULTS",
    )
    command.add("-o", "--out", default="report.html", help="the page (report.html)", metavar="FILE")

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.commands.runs import report_command

        return report_command(args.results or ["results"], args.out)

    command.run(run)
