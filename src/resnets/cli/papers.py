"""`resnets reproduce` and `resnets report`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.options import Command

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


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
        from resnets.cli.reproduce_output import list_command, reproduce_command

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
        from resnets.cli.run_output import report_command

        return report_command(args.results or ["results"], args.out)

    command.run(run)
