"""The commands about runs: `runs`, `compare`, `plot`, `results`, `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resnets.cli.options import Command

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def _outputs() -> Any:
    """What prints; it is imported when a command runs."""
    from resnets.cli import run_output

    return run_output


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
    command.run(lambda args: _outputs().runs_command(args.folder, as_json=args.json))


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
    command.run(lambda args: _outputs().compare_command(args.runs, args.out, as_json=args.json))


def plot(commands: Commands) -> None:
    command = Command(
        commands,
        "plot",
        help="draw the curves of runs",
        description="Draw training loss (dashed) and error (solid) over iterations, several runs in one picture.",
    )
    command.add("runs", nargs="+", help="folders of runs", metavar="RUN")
    command.add("-o", "--out", default="curves.svg", help="the picture: .svg, .png or .pdf (curves.svg)")
    command.run(lambda args: _outputs().plot_command(args.runs, args.out))


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
    command.run(lambda args: _outputs().results_command(args.runs, args.out))


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
    command.run(lambda args: _outputs().report_command(args.results or ["results"], args.out))
