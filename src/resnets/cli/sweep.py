"""The options of `train` that make it a sweep, and what is printed of one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from resnets.cli.options import show_mistakes
from resnets.errors import UserError
from resnets.experiments.options import SweepOptions
from resnets.options import fields_of, parse_value
from resnets.text import print_lines, print_table, say

if TYPE_CHECKING:
    from resnets.experiments.sweep import Sweep, Trial, VariantSummary


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """`--vary`, `--seeds`, `--runs` and `--jobs`; `--vary` may be given several times."""
    group = parser.add_argument_group("several runs", "the same command again resumes or skips each of them")
    for field in fields_of(SweepOptions).values():
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "metavar": field.metadata["metavar"]}
        if field.name == "vary":
            settings["action"] = "append"
        else:
            settings["type"] = show_mistakes(partial(parse_value, field))
        group.add_argument(f"--{field.name}", help=field.metadata["help"].replace("%", "%%"), **settings)


def sweep_command(model: str, options: SweepOptions, keywords: Mapping[str, Any]) -> int:
    """Run and summarise a sweep; `keywords` are those of `resnets.train`. 1 if a run failed."""
    from resnets.experiments.sweep import ConsoleSweepWatcher, SweepWatcher, sweep

    if options.jobs > 1 and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("--jobs starts processes of its own: start it without torchrun, or leave --jobs out.")
    is_main = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun started, one prints

    class Printer(SweepWatcher if keywords.get("quiet") or not is_main else ConsoleSweepWatcher):  # type: ignore[misc]
        def show_plan(self, trials: Sequence[Trial]) -> None:
            if is_main:
                _print_plan(model, trials, options)

    given = {name: getattr(options, name) for name in fields_of(SweepOptions)}
    found = sweep(model, watcher=Printer(), **given, **keywords)
    if is_main:
        _print_results(model, found)
    return 1 if found.failures else 0


def _print_plan(model: str, trials: Sequence[Trial], options: SweepOptions) -> None:
    variants = list(dict.fromkeys(trial.name for trial in trials))
    seeds = f"seeds {', '.join(dict.fromkeys(str(trial.seed) for trial in trials))}"
    what = f"{len(variants)} variants, {seeds}" if options.vary else seeds
    jobs = f"; {options.jobs} at a time" if options.jobs > 1 else ""
    print_lines(f"{len(trials)} runs of {model}: {what}{jobs}.", flush=True)
    if options.vary:
        print_lines(*(f"  {name}" for name in variants), flush=True)


def _write_std(variant: VariantSummary) -> str:
    return f"{variant.errors.std:.2f}" if variant.count > 1 else ""


def _print_results(model: str, found: Sweep) -> None:
    from resnets.report.curves import draw

    for run in found.runs:
        try:
            print_lines(f"run: {run.path}")
            if not run.picture.exists():
                draw([run], run.picture)
        except UserError as error:
            say(f"no curves: {error}")
    header = ("variant", "error on", "mean, %", "std", "runs")
    cells = [
        [each.name or model, each.error_on, f"{each.errors.mean:.2f}", _write_std(each), str(each.count)]
        for each in found.summarize()
    ]
    if cells:
        print_lines()
        print_table(header, cells, right=header[2:])
    for trial in found.failures:
        say(f"{trial} failed: {trial.failure}")
