"""`resnets analyze`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.analysis.options import AnalyzeOptions
from resnets.cli.options import NETWORK_FIELDS, Command
from resnets.options import fields_of
from resnets.text import json_text, print_json, print_lines, say
from resnets.zoo import NetworkOptions

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def analyze(commands: Commands) -> None:
    command = Command(
        commands,
        "analyze",
        AnalyzeOptions,
        NetworkOptions,
        help="measure how signals and gradients travel through the units",
        description="Measure how signals and gradients travel through the units of networks, of weights and of runs: "
        "equations (4), (5), (7) and (8) of v2. Networks and statistics stay as they are.",
        usage="%(prog)s [options] NETWORK_OR_WEIGHTS ...",
    )
    command.add(
        "models", nargs="+", help="a network, a pretrained name, a file, or a run", metavar="NETWORK_OR_WEIGHTS"
    )
    command.add(
        "--vary", help="a curve for each value: order=original,full_preact; also shortcut, resize", metavar="FIELD=A,B"
    )
    words = "for runs: also every checkpoint, and the initial weights unless --weights gave them"
    command.add("--along", action="store_true", help=words)
    command.add("--out", help="write propagation.json, .svg and .png there", metavar="DIR")
    command.add("--json", action="store_true", help="print JSON")
    command.add_options(common=(*fields_of(AnalyzeOptions), *NETWORK_FIELDS))

    def run(args: argparse.Namespace) -> None:
        given, changes = command.read(args)
        _analyze(args, AnalyzeOptions(**given), changes)

    command.run(run)


def _analyze(args: argparse.Namespace, options: AnalyzeOptions, changes: dict[str, Any]) -> None:
    from resnets.analysis.analyze import analyze_each
    from resnets.cli.propagation_table import KEY, print_propagation
    from resnets.cli.signal_table import LOGGED_KEY, print_signal, read_signal
    from resnets.report.pictures import require_matplotlib
    from resnets.runs import provenance_to_publish

    if args.out is not None:
        require_matplotlib("the analysis")
        Path(args.out).mkdir(parents=True, exist_ok=True)
    results = []
    for found in analyze_each(args.models, options=options, changes=changes, vary=args.vary, along=args.along):
        if found.warning:
            say(f"warning: {found.warning}")
        results.append(found.to_dict())
        if not args.json:
            print_propagation(found.label, found.data, found.propagation)
    along_training = read_signal(args.models)
    everything = {"analyses": results, "logged": along_training, "provenance": provenance_to_publish()}
    if args.json:
        print_json(everything)
    else:
        for name, lines in along_training.items():
            print_signal(name, lines)
        print_lines(*KEY.splitlines(), *(LOGGED_KEY.splitlines() if along_training else ()))
    if args.out is not None:
        _write(Path(args.out), everything, show=not args.json)


def _write(folder: Path, everything: dict[str, Any], *, show: bool) -> None:
    from resnets.atomic import write_atomically
    from resnets.report.propagation import draw

    pictures = [folder / "propagation.svg", folder / "propagation.png"]
    data = folder / "propagation.json"
    write_atomically(data, json_text(everything, indent=1).encode())
    draw(everything["analyses"], pictures)
    if show:
        print_lines(data, *pictures)
