"""What becomes of runs: `runs`, `compare`, `plot`, `results`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.options import Command

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def runs(commands: Commands) -> None:
    command = Command(
        commands,
        "runs",
        help="list runs: what differs, state, errors, time left",
        description="List the runs of a folder: a column for each field that differs between them, then how far each "
        "is and its last and best error.",
    )
    command.add("folder", nargs="?", default="runs", help="folder of the runs (runs)", metavar="DIR")
    command.add("--json", action="store_true", help="print JSON")

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.run_output import runs_command

        return runs_command(args.folder, as_json=args.json)

    command.run(run)


def compare(commands: Commands) -> None:
    command = Command(
        commands,
        "compare",
        help="put runs side by side",
        description="Show what differs between runs in configuration, errors, speed and memory, and whether the "
        "difference of their errors may be chance.",
    )
    command.add("runs", nargs="+", help="folders of runs", metavar="RUN")
    command.add("--json", action="store_true", help="print JSON")
    command.add("-o", "--out", help="draw the curves: .svg, .png or .pdf", metavar="FILE")

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.run_output import compare_command

        compare_command(args.runs, args.out, as_json=args.json)

    command.run(run)


def plot(commands: Commands) -> None:
    command = Command(
        commands,
        "plot",
        help="draw the curves of runs",
        description="Draw training loss (dashed) and error (solid) over iterations, several runs in one picture.",
    )
    command.add("runs", nargs="+", help="folders of runs", metavar="RUN")
    command.add("-o", "--out", default="curves.svg", help="the picture: .svg, .png or .pdf (curves.svg)")

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.run_output import plot_command

        return plot_command(args.runs, args.out)

    command.run(run)


def results(commands: Commands) -> None:
    command = Command(
        commands,
        "results",
        help="collect finished runs into one small JSON file",
        description="Collect finished runs, a group for each variant with its seeds: errors, curves and provenance, as "
        "JSON.",
    )
    command.add("runs", nargs="+", help="folders of runs", metavar="RUN")
    command.add("-o", "--out", required=True, help="the file to write", metavar="FILE")

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.run_output import results_command

        results_command(args.runs, args.out)

    command.run(run)
