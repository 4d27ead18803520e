"""`resnets doctor`."""

from __future__ import annotations

import argparse
import dataclasses
from itertools import groupby
from typing import TYPE_CHECKING

from resnets.cli.options import Command
from resnets.text import print_json, print_lines, print_table

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def doctor(commands: Commands) -> None:
    command = Command(
        commands,
        "doctor",
        help="examine this machine: versions, kernels, cache, data, extras, and what to do",
        description="Examine what this machine has for the package, and say what to do about what it lacks. Kernels "
        "that are not compiled yet are compiled. The exit code is 1 if something does not work.",
    )
    command.add("--json", action="store_true", help="print JSON")
    command.run(_examine)


def _examine(args: argparse.Namespace) -> int:
    from resnets.doctor import examine

    findings = examine()
    problems = [found for found in findings if found.state == "problem"]
    if args.json:
        print_json([dataclasses.asdict(found) for found in findings])
        return 1 if problems else 0
    marks = {"ok": "", "note": "*", "problem": "!"}
    rows = []
    for group, members in groupby(findings, key=lambda found: found.group):
        for place, found in enumerate(members):
            rows.append((group if not place else "", found.what, marks[found.state], found.value, found.advice))
    print_table(("", "what", " ", "found", "what to do"), rows)
    print_lines("", f"! {len(problems)} that do not work; * could be better" if problems else "* could be better")
    return 1 if problems else 0
