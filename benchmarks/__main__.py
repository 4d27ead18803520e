"""Measure ourselves beside other libraries: `python -m benchmarks [--quick] [--only step,memory] [--lines PATTERN]`.

The section race94 takes hours and is measured only with `--only race94`; AIRBENCH names the script that it races
against. Each line is saved to results/bench/ as soon as it is measured, so an interrupt costs one line. A quick run is
only for looking and goes to build/bench/.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks import lines, results, timing
from benchmarks.airbench import read_script
from benchmarks.lines import SECTIONS, Line
from resnets.errors import UserError, one_of
from resnets.text import clock, print_table
from tools.tables import depth
from tools.tables.performance import SECTIONS as TABLES
from tools.tables.performance import explain_gaps
from tools.tables.ratios import read_lines as read

Plan = list[tuple[str, Line, int]]  # section, line, rounds


def plan(only: str | None, quick: bool, rounds: int | None, pattern: str = "*") -> Plan:
    names = only.split(",") if only else [name for name, section in SECTIONS.items() if not section.on_request]
    for name in names:
        if name not in SECTIONS:
            raise one_of("section", name, SECTIONS)
    if rounds is not None and rounds < 1:
        raise UserError(f"--rounds must be at least 1, not {rounds}.")
    if "race94" in names:
        read_script()  # before hours are spent
    found: Plan = []
    for name in names:
        section = SECTIONS[name]
        for line in section.quick if quick else section.lines:
            if not fnmatchcase(line.name, pattern):
                continue
            usual = line.rounds or section.rounds
            found.append((name, line, rounds or (min(usual, lines.QUICK_ROUNDS) if quick else usual)))
    if not found:
        raise UserError(f"no line has a name like {pattern!r}; lines are named as in the tables: 'preresnet1001*'.")
    return found


class Eta:
    """How far it is: shares of the whole by the lines' rough efforts, in the speed that was seen so far."""

    def __init__(self, work: Plan) -> None:
        self.total = sum(line.effort * len(line.contestants) * rounds for _, line, rounds in work)
        self.done, self.began = 0.0, time.monotonic()

    def tick(self, line: Line) -> None:
        self.done += line.effort
        if sys.stderr.isatty():
            print(f"\r\x1b[K{self}  {line.name}", end="", file=sys.stderr, flush=True)

    def finish(self, section: str, line: Line) -> None:
        end = "\r\x1b[K" if sys.stderr.isatty() else ""
        print(f"{end}{self}  {section}: {line.name}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        spent = time.monotonic() - self.began
        left = spent * (self.total / self.done - 1) if self.done else self.total
        return f"{100 * self.done / self.total:3.0f} %  {clock(spent)}  ETA {clock(left)}"


def run(work: Plan, out: Path) -> None:
    eta = Eta(work)
    for section, line, rounds in work:
        origin = results.origin()
        found = timing.measure(line, rounds, lambda line=line: eta.tick(line))  # type: ignore[misc]
        results.save(out / "bench" / f"{section}.json", line, found, rounds=rounds, **origin)
        eta.finish(section, line)


def show(work: Plan, out: Path) -> None:
    """The tables of what this run measured."""
    for section in dict.fromkeys(name for name, _, _ in work):
        measured = {line.name for name, line, _ in work if name == section}
        found = {name: line for name, line in read(out, section).items() if name in measured}
        header, rows = TABLES[section](found)
        print(f"\n{section}")
        print_table(header, rows, right=header[1:])
        print("\n".join(explain_gaps(found)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small nets and few rounds, two minutes")
    parser.add_argument("--only", metavar="SECTIONS", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--lines", metavar="PATTERN", default="*", help="only lines whose name fits a shell pattern")
    parser.add_argument("--rounds", type=int, help="for every line")
    parser.add_argument("--threads", type=int, help="of every contestant; as many as torch takes by default")
    parser.add_argument("--out", type=Path, help="folder of results, instead of results/ (quick: build/)")
    args = parser.parse_args()
    out = args.out or timing.ROOT / ("build" if args.quick else "results")
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    try:
        work = plan(args.only, args.quick, args.rounds, args.lines)
        run(work, out)
    except UserError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nbenchmarks: stopped; the lines measured so far are in {out / 'bench'}.", file=sys.stderr)
        return 130
    show(work, out)
    if any(section == "depth" for section, _, _ in work):
        print(f"\n{depth.draw(out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
