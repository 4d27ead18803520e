"""Run the papers' tables and figures, and compare our numbers with theirs: `resnets.reproduce`.

torch is imported when a row is timed, run or measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.comparison import HEADER, compare_rows, correlate, find_common, remove_common, write_error
from resnets.experiments.observations import OBSERVATIONS, Verdict, judge
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.outcomes import Outcome, Outcomes, read_row
from resnets.experiments.plan import (
    Job,
    Plan,
    RowEstimate,
    choose_rows,
    find_experiments,
    make_jobs,
    open_imagenet,
)
from resnets.experiments.results import RowFile
from resnets.options import takes
from resnets.papers.rows import Experiment
from resnets.progress import Console, Progress, Silent


@dataclass(frozen=True)
class Table:
    """An experiment compared with the paper, as text."""

    title: str
    header: tuple[str, ...]
    cells: list[list[str]]
    notes: list[str]


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` planned, ran and found."""

    experiments: tuple[Experiment, ...]
    plan: Plan
    outcomes: Outcomes  # all rows of the budget that have results; none after a dry run
    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]  # on the observations about the experiments' rows
    left_out: tuple[UserError, ...]  # results that could not be read


class Watcher:
    """What `reproduce` reports while it works; this one shows nothing. Write a subclass to show it."""

    progress: Progress = Silent()
    quiet = True

    def show_plan(self, plan: Plan) -> None:
        """Before anything runs."""

    def start_run(self, row: RowEstimate, seed: int, number: int, count: int) -> None:
        """Before a run of the `number`th of `count` rows."""

    def end_run(self, row: RowEstimate, seed: int, seconds: float) -> None:
        """After a run."""

    def end_row(self, row: RowEstimate, path: Path, errors: list[str]) -> None:
        """After all runs of a row; the errors are sentences."""

    def measure_responses(self, job: Job, seed: int, weights: Path) -> None:
        """After an older result was completed from the weights of its run."""

    def leave_out(self, error: UserError) -> None:
        """When a file of results cannot be read."""


class ConsoleWatcher(Watcher):
    """Shows the progress of timing and training on standard error."""

    progress = Console()
    quiet = False


@takes(ReproduceOptions)
def reproduce(names: str | Sequence[str], *, options: ReproduceOptions, watcher: Watcher | None = None) -> Reproduction:
    """Run experiments of the papers at a budget and compare the results with the papers.

    `names` are experiments such as `table1`, or `all`. Finished runs are skipped, stopped runs resume. Methods of
    `watcher` are called before and after each of them.

    >>> found = resnets.reproduce("table1", budget="smoke")
    >>> found.outcomes["resnet110-cifar10"].values("error")
    """
    watcher = watcher or Watcher()
    experiments = find_experiments([names] if isinstance(names, str) else names)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("reproduce runs a row on one device: start it without torchrun, and spread rows by --shard.")
    left_out: dict[str, UserError] = {}

    def leave_out(error: UserError) -> None:
        if str(error) not in left_out:  # a file that is read again fails again
            left_out[str(error)] = error
            watcher.leave_out(error)

    plan = estimate_plan(experiments, options, watcher.progress, leave_out)
    watcher.show_plan(plan)
    outcomes = Outcomes()
    if not options.dry_run:
        _run_rows(plan, options, watcher)
        outcomes = Outcomes.read(Path(options.results) / options.budget, leave_out)
    tables = tuple(_compare(experiment, outcomes, options.budget) for experiment in experiments)
    rows = {row for experiment in experiments for row in experiment.rows}
    verdicts = tuple(judge(one, outcomes) for one in OBSERVATIONS if rows & set(one.rows))
    return Reproduction(tuple(experiments), plan, outcomes, tables, verdicts, tuple(left_out.values()))


def estimate_plan(
    experiments: Sequence[Experiment],
    options: ReproduceOptions,
    progress: Progress,
    leave_out: Callable[[UserError], None],
) -> Plan:
    """Time a few steps of each kind of row that is not finished. Rows whose results cannot be read are left out."""
    imagenet = open_imagenet(options.imagenet) if options.imagenet is not None else None
    rows = choose_rows(experiments, options.rows, options.shard)
    jobs, waiting = make_jobs(rows, BUDGETS[options.budget], options.seeds, imagenet)
    left: dict[Job, tuple[int, ...]] = {}
    for job in jobs:
        try:
            done = RowFile(Path(options.results), job).runs
        except UserError as error:
            leave_out(error)
        else:
            left[job] = tuple(seed for seed in job.seeds if seed not in done)
    shared = find_common(job.scaled for job in left)
    estimates = [RowEstimate(job, seeds, remove_common(job.scaled, shared)) for job, seeds in left.items()]
    return Plan(options.budget, tuple(_estimate_rows(estimates, options, progress)), waiting, shared)


def _estimate_rows(rows: list[RowEstimate], options: ReproduceOptions, progress: Progress) -> list[RowEstimate]:
    """Estimate the rows that have runs left."""
    todo = sum(bool(row.seeds) for row in rows)
    if not todo:
        return rows
    from resnets.engine.threads import Threads  # imports torch
    from resnets.experiments.estimate import estimate_row
    from resnets.training.estimate import Estimator

    estimator = Estimator(options.device, options.memory, options.engine)  # refuses options before the bar begins
    found = []
    threads = nullcontext() if options.threads == "auto" else Threads(options.threads)
    with threads, progress.task("timing a few steps of each kind of row", todo) as advance:
        for row in rows:
            if row.seeds:
                found.append(estimate_row(row, estimator))
                advance(1)
            else:
                found.append(row)
    return found


def _run_rows(plan: Plan, options: ReproduceOptions, watcher: Watcher) -> None:
    """Run what is left, and measure what older results lack, from the weights of their runs where they still exist."""
    files = {row: RowFile(Path(options.results), row.job) for row in plan.rows}
    if not plan.todo and not any(file.find_unmeasured(options.out) for file in files.values()):
        return
    from resnets.experiments.running import Runner  # imports torch

    runner = Runner(options, quiet=watcher.quiet)
    for number, row in enumerate(plan.todo, 1):
        for seed in row.seeds:
            watcher.start_run(row, seed, number, len(plan.todo))
            began = time.monotonic()
            runner.run(row.job, seed)
            watcher.end_run(row, seed, time.monotonic() - began)
        path = files[row].path
        found = read_row(path)
        watcher.end_row(row, path, [_describe_error(found.by(test), row.job.row.split) for test in found.tests])
    for row, file in files.items():
        for seed, run in file.find_unmeasured(options.out):
            runner.measure_responses(row.job, seed, run)
            watcher.measure_responses(row.job, seed, run.weights)


def _describe_error(one: Outcome, split: str) -> str:
    test = f", {one.test}," if one.test else ""
    return f"{write_error(one, ' %')} {split} error{test} of {len(one.runs)} runs"


def _compare(experiment: Experiment, outcomes: Outcomes, budget: str) -> Table:
    cells, scaled = compare_rows(experiment, outcomes)
    title = f"{experiment.where}: {experiment.title}. Errors in %; ours: budget {budget}, scaled: {scaled}."
    return Table(title, HEADER, cells, [f"{each} (budget {budget})." for each in correlate(experiment, outcomes)])
