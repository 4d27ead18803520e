"""Run the papers' tables and figures, and put our numbers beside theirs: `resnets.reproduce`.

No torch here before a row is timed, run or measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resnets.engine import require_mode
from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.comparison import HEADER, compare_rows, correlate, find_common, write_error
from resnets.experiments.observations import OBSERVATIONS, Verdict, judge
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.outcomes import Outcome, Outcomes, read_row
from resnets.experiments.plan import Job, choose_rows, find_experiments, make_plan, open_imagenet
from resnets.experiments.results import RowFile
from resnets.options import takes
from resnets.papers.rows import Experiment
from resnets.progress import Console, Progress, Silent


@dataclass(frozen=True)
class RowEstimate:
    """What is left to do of a row. Times are of all its runs that are left; a finished row has none."""

    job: Job
    seeds: tuple[int, ...]  # that are left
    scaled_besides: tuple[str, ...]  # what is scaled in this row and not in all
    fits: bool = True
    seconds: float = 0.0  # at the load that the machine has now
    cpu_seconds: float | None = None  # of all threads; None on other devices
    memory: int = 0  # bytes
    mode: str = ""
    busy: float = 1.0  # how many times as long a step takes as its CPU time explains
    advice: str = ""  # what would make it fit


@dataclass(frozen=True)
class Plan:
    """What a reproduction will do, and what that takes."""

    budget: str
    rows: tuple[RowEstimate, ...]
    waiting: tuple[str, ...]  # names of rows on ImageNet, where it was not given
    scaled: tuple[str, ...]  # in all rows

    @property
    def todo(self) -> list[RowEstimate]:
        return [row for row in self.rows if row.seeds and row.fits]


@dataclass(frozen=True)
class Table:
    """An experiment beside the paper's numbers, as text."""

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
    verdicts: tuple[Verdict, ...]  # on the observations that the experiments are about
    left_out: tuple[UserError, ...]  # results that could not be read


class Watcher:
    """What `reproduce` reports while it works; this one shows nothing. Write a subclass to show it."""

    progress: Progress = Silent()
    quiet = True

    def show_plan(self, plan: Plan) -> None:
        """Before anything runs."""

    def start_run(self, row: RowEstimate, seed: int, number: int, count: int) -> None:
        """A run of the `number`th of `count` rows begins."""

    def end_run(self, row: RowEstimate, seed: int, seconds: float) -> None:
        """It has ended."""

    def end_row(self, row: RowEstimate, path: Path, errors: list[str]) -> None:
        """All runs of a row have ended; the errors are sentences."""

    def measure_responses(self, job: Job, seed: int, weights: Path) -> None:
        """An older result has been completed from the weights of its run."""

    def leave_out(self, error: UserError) -> None:
        """A file of results cannot be read."""


class ConsoleWatcher(Watcher):
    """Shows the progress of timing and training on standard error."""

    progress = Console()
    quiet = False


@dataclass
class _Faults:
    """Each fault once."""

    tell: Callable[[UserError], None]
    met: list[UserError] = field(default_factory=list)

    def add(self, error: UserError) -> None:
        if str(error) not in map(str, self.met):
            self.met.append(error)
            self.tell(error)


@takes(ReproduceOptions)
def reproduce(names: str | Sequence[str], *, options: ReproduceOptions, watcher: Watcher | None = None) -> Reproduction:
    """Run experiments of the papers at a budget and compare the results with the papers.

    `names` are experiments such as `table1`, or `all`. What is finished is skipped; a run that was stopped goes on.
    Methods of `watcher` are called along the way.

    >>> found = resnets.reproduce("table1", budget="smoke")
    >>> found.outcomes["resnet110-cifar10"].values("error")
    """
    watcher = watcher or Watcher()
    experiments = find_experiments([names] if isinstance(names, str) else names)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("reproduce runs a row on one device: start it without torchrun, and spread rows by --shard.")
    faults = _Faults(watcher.leave_out)
    folder = Path(options.results)
    plan = estimate_plan(experiments, options, watcher, faults.add)
    watcher.show_plan(plan)
    if not options.dry_run:
        _run_rows(plan.todo, folder, options, watcher)
        _complete_results([row.job for row in plan.rows], folder, options, watcher)
    outcomes = Outcomes() if options.dry_run else Outcomes.read(folder / options.budget, faults.add)
    tables = tuple(_compare(experiment, outcomes, options.budget) for experiment in experiments)
    rows = {row for experiment in experiments for row in experiment.rows}
    verdicts = tuple(judge(one, outcomes) for one in OBSERVATIONS if rows & set(one.rows))
    return Reproduction(tuple(experiments), plan, outcomes, tables, verdicts, tuple(faults.met))


def estimate_plan(
    experiments: Sequence[Experiment],
    options: ReproduceOptions,
    watcher: Watcher,
    leave_out: Callable[[UserError], None],
) -> Plan:
    """Time a few steps of each kind of row that is not finished. Rows whose results cannot be read are left out."""
    imagenet = open_imagenet(options.imagenet) if options.imagenet is not None else None
    rows = choose_rows(experiments, options.rows, options.shard)
    jobs, waiting = make_plan(rows, BUDGETS[options.budget], options.seeds, imagenet)
    left: dict[Job, tuple[int, ...]] = {}
    for job in jobs:
        try:
            done = RowFile(Path(options.results), job).runs
        except UserError as error:
            leave_out(error)
        else:
            left[job] = tuple(seed for seed in job.seeds if seed not in done)
    shared = find_common(job.scaled for job in left)
    todo = [job for job in left if left[job]]
    estimates = _estimate_jobs(todo, left, shared, options, watcher.progress) if todo else {}
    finished = {job: RowEstimate(job, (), _besides(job, shared)) for job in left if job not in estimates}
    return Plan(options.budget, tuple({**finished, **estimates}[job] for job in left), waiting, shared)


def _besides(job: Job, shared: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in job.scaled if word not in shared)


def _estimate_jobs(
    jobs: Sequence[Job],
    left: dict[Job, tuple[int, ...]],
    shared: Sequence[str],
    options: ReproduceOptions,
    progress: Progress,
) -> dict[Job, RowEstimate]:
    from resnets.engine.device import choose  # imports torch
    from resnets.experiments.pricing import price

    choose(options.device)  # refused before the bar begins
    require_mode(options.engine, options.memory)
    found = {}
    with progress.task("timing a few steps of each kind of row", len(jobs)) as advance:
        for job in jobs:
            one, runs = price(job, options.device, options.memory, options.engine), len(left[job])
            cpu = None if one.cpu_seconds is None else one.cpu_seconds * runs
            found[job] = RowEstimate(
                job, left[job], _besides(job, shared), one.fits, one.seconds * runs, cpu,
                one.memory, one.mode, one.busy, one.advice,
            )  # fmt: skip
            advance(1)
    return found


def _run_rows(rows: Sequence[RowEstimate], folder: Path, options: ReproduceOptions, watcher: Watcher) -> None:
    if not rows:
        return
    from resnets.experiments.running import Sources, run_seed  # imports torch

    sources = Sources(options.data_dir)
    how = {name: getattr(options, name) for name in ("device", "memory", "engine", "bad_images")}
    for number, row in enumerate(rows, 1):
        path = RowFile(folder, row.job).path
        for seed in row.seeds:
            watcher.start_run(row, seed, number, len(rows))
            began = time.monotonic()
            run_seed(row.job, seed, sources[row.job], out=Path(options.out), folder=folder, quiet=watcher.quiet, **how)
            watcher.end_run(row, seed, time.monotonic() - began)
        found = read_row(path)
        watcher.end_row(row, path, [_describe_error(found.by(test), row.job.row.split) for test in found.tests])


def _describe_error(one: Outcome, split: str) -> str:
    test = f", {one.test}," if one.test else ""
    return f"{write_error(one, ' %')} {split} error{test} of {len(one.runs)} runs"


def _complete_results(jobs: Sequence[Job], folder: Path, options: ReproduceOptions, watcher: Watcher) -> None:
    """Measure what older results lack, from the weights of their runs where these are still there."""
    out = Path(options.out)
    lacking = [(job, *each) for job in jobs for each in RowFile(folder, job).find_unmeasured(out)]
    if not lacking:
        return
    from resnets.experiments.running import Sources, measure_responses  # imports torch

    sources = Sources(options.data_dir)
    for job, seed, run in lacking:
        measure_responses(job, seed, run, sources[job], folder)
        watcher.measure_responses(job, seed, run.weights)


def _compare(experiment: Experiment, outcomes: Outcomes, budget: str) -> Table:
    cells, scaled = compare_rows(experiment, outcomes)
    title = f"{experiment.where}: {experiment.title}. Errors in %; ours: budget {budget}, scaled: {scaled}."
    return Table(title, HEADER, cells, [f"{each} (budget {budget})." for each in correlate(experiment, outcomes)])
