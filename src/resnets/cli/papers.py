"""`resnets reproduce`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.options import Command
from resnets.errors import UserError

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def reproduce(commands: Commands) -> None:
    from resnets.experiments.options import ReproduceOptions

    command = Command(
        commands,
        "reproduce",
        ReproduceOptions,
        help="run the papers' tables and figures, at a budget",
        description="Run the papers' tables and figures and compare our numbers with theirs. The plan and the time "
        "that it takes are printed first. The same command again resumes what was stopped and skips what is finished.",
        usage="%(prog)s [options] EXPERIMENT ...",
    )
    command.add("names", nargs="*", help="table1, figure3 ..., all; or detection, or signals", metavar="EXPERIMENT")
    command.add("--list", action="store_true", help="describe the experiments and the budgets, with prices and results")
    command.add("--from", dest="file", help="train the runs of this result file again and compare", metavar="FILE")
    command.add_options()

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.reproduce_output import (
            detection_command,
            list_command,
            reproduce_command,
            rerun_command,
            signals_command,
        )

        (given,) = command.read(args)
        if args.list:
            return list_command(ReproduceOptions(**given).results)
        if args.file is not None:
            return rerun_command(args.file, args.names, given)
        if "detection" in args.names:
            if len(args.names) > 1:
                raise UserError("detection is reproduced by itself, as it needs other pictures; name it alone.")
            return detection_command(ReproduceOptions(**given))
        if "signals" in args.names:
            if len(args.names) > 1:
                raise UserError("signals are analysed by themselves, as nothing is trained for them; name them alone.")
            return signals_command(ReproduceOptions(**given))
        return reproduce_command(args.names, ReproduceOptions(**given))

    command.run(run)
