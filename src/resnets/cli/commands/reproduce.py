"""What `resnets reproduce` does: list, or plan, price, run, compare, judge."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from resnets.data.bad_images import require_policy
from resnets.data.progress import Console
from resnets.engine import require_mode
from resnets.errors import UserError
from resnets.experiments import comparison, results
from resnets.experiments.budgets import BUDGETS, budget_of
from resnets.experiments.observations import OBSERVATIONS, verdict
from resnets.experiments.outcomes import Outcome, read, read_row
from resnets.experiments.plan import Job, Plan, experiments_of, imagenet_in, plan, rows_of
from resnets.papers.rows import Experiment, Row
from resnets.papers.tables import EXPERIMENTS
from resnets.report import responses
from resnets.report.left_out import LeftOut
from resnets.text import clock, print_lines, print_table, say


def list_command() -> None:
    cells = [[e.name, e.where, str(len(e.rows)), e.title] for e in EXPERIMENTS.values()]
    print_table(("experiment", "where", "rows", "what"), cells, right=("rows",))
    print_lines()
    print_table(("budget", "seeds", "what"), [[b.name, str(b.seeds), b.text] for b in BUDGETS.values()], ("seeds",))


def reproduce_command(
    names: list[str],
    *,
    budget: str,
    seeds: int | None,
    rows: str | None,
    shard: str | None,
    out: str,
    results_folder: str,
    data_dir: str | None,
    imagenet: str | None,
    bad_images: str,
    device: str,
    engine: str,
    memory: str,
    dry_run: bool,
) -> int:
    experiments = experiments_of(names)
    require_policy(bad_images)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("reproduce runs a row on one device: start it without torchrun, and spread rows by --shard.")
    pictures = imagenet_in(imagenet) if imagenet is not None else None
    planned = plan(rows_of(experiments, rows, shard), budget_of(budget), seeds, pictures)
    folder, left_out = Path(results_folder), LeftOut()
    planned = _readable(planned, folder, left_out)
    fitting = _priced(planned, folder, device, memory, engine)
    if dry_run:
        return left_out.code
    _run(fitting, folder, Path(out), data_dir, device=device, memory=memory, engine=engine, bad_images=bad_images)
    _measure_later(planned.jobs, folder, Path(out), data_dir)
    found = read(folder / budget, left_out.tell_once)
    compare(experiments, found, budget)
    if EXPERIMENTS["figure7"] in experiments:
        _responses(EXPERIMENTS["figure7"], found, folder / budget / "figure7.svg")
    return left_out.code


# --- plan and price ---------------------------------------------------------------------------


def _readable(planned: Plan, folder: Path, left_out: LeftOut) -> Plan:
    """Without rows whose results are there and cannot be read."""
    jobs = []
    for job in planned.jobs:
        with left_out.unless_readable():
            results.known(folder, job)
            jobs.append(job)
    return replace(planned, jobs=tuple(jobs))


def _priced(planned: Plan, folder: Path, device: str, memory: str, engine: str) -> dict[Job, float]:
    """Print what each row will take; of those that fit into memory and are not finished return the seconds of a run."""
    left = {job: [s for s in job.seeds if s not in results.seeds_done(folder, job)] for job in planned.jobs}
    todo = [job for job in planned.jobs if left[job]]
    prices = {}
    if todo:
        from resnets.engine.device import choose  # imports torch
        from resnets.experiments.pricing import price

        choose(device)  # refused before the bar begins
        require_mode(engine, memory)
        with Console().task("timing a few steps of each kind of row", len(todo)) as advance:
            for job in todo:
                prices[job] = price(job, device, memory, engine)
                advance(1)
    cells, told = [], comparison.common(job.scaled for job in planned.jobs)
    for job in planned.jobs:
        runs = f"{len(left[job])} of {len(job.seeds)}"
        if job in prices:
            cost = prices[job]
            foretold = clock(cost.seconds * len(left[job])) if cost.fits else ""
            taken = [foretold, f"{cost.memory >> 20:,} MiB", cost.mode]
        else:
            taken = ["finished", "", ""]
        besides = ", ".join(word for word in job.scaled if word not in told)
        cells.append([job.row.name, str(job.spec.depth), f"{job.steps:,}", runs, *taken, besides])
    header = ("row", "layers", "steps", "runs left", "time", "memory", "mode", "scaled besides")
    if cells:
        print_lines(f"Budget {planned.jobs[0].budget.name}; scaled in all rows: {', '.join(told) or 'nothing'}.")
        print_table(header, cells, right=header[1:6])
    if planned.waiting:
        names = ", ".join(row.name for row in planned.waiting)
        print_lines(f"Waiting for ImageNet, a folder with train and val that --imagenet DIR names: {names}.")
    for job, cost in prices.items():
        if not cost.fits:
            print_lines(f"{job.row.name} does not fit into memory and is left out; it would with {cost.advice}.")
    fitting = {job: prices[job].seconds for job in todo if prices[job].fits}
    total = sum(seconds * len(left[job]) for job, seconds in fitting.items())
    print_lines(f"{len(fitting)} rows to run, {clock(total)} on this machine as busy as it is now.", flush=True)
    return fitting


# --- run --------------------------------------------------------------------------------------


def _run(jobs: dict[Job, float], folder: Path, out: Path, data_dir: str | None, **how: Any) -> None:
    if not jobs:
        return
    from resnets.experiments.running import Sources, run_seed  # imports torch

    sources = Sources(data_dir)
    for number, (job, foretold) in enumerate(jobs.items(), 1):
        for seed in job.seeds:
            if seed in results.seeds_done(folder, job):
                continue
            print_lines(f"[{number}/{len(jobs)}] {job.row.name}, budget {job.budget.name}, seed {seed}", flush=True)
            began = time.monotonic()
            run_seed(job, seed, sources[job], out=out, folder=folder, **how)
            taken = clock(time.monotonic() - began)
            print_lines(f"took {taken}; foretold for a whole run: {clock(foretold)}", flush=True)
        path = results.path_of(folder, job)
        found = read_row(path)
        for one in map(found.by, found.tests):
            what = f"{job.row.split} error" + f", {one.test}," * bool(one.test)
            print_lines(f"{comparison.error_text(one, ' %')} {what} of {len(one.runs)} runs: {path}", flush=True)


def _measure_later(jobs: Iterable[Job], folder: Path, out: Path, data_dir: str | None) -> None:
    """What older results lack, from the weights of their runs where these are still there."""
    lacking = [(job, seed, run) for job in jobs for seed, run in results.lacking(folder, job, out)]
    if not lacking:
        return
    from resnets.experiments.running import Sources, measure_later  # imports torch

    sources = Sources(data_dir)
    for job, seed, run in lacking:
        measure_later(job, seed, run, sources[job], folder)
        print_lines(f"{job.row.name}, seed {seed}: responses measured from {run.weights}", flush=True)


# --- compare and judge ------------------------------------------------------------------------


def compare(experiments: list[Experiment], found: dict[str, Outcome], budget: str) -> None:
    """Each experiment beside the papers' numbers, and the observations that its rows speak of."""
    rows: set[Row] = set()
    for experiment in experiments:
        rows |= set(experiment.rows)
        cells, scaled = comparison.lines(experiment, found)
        title = f"{experiment.where}: {experiment.title}. Errors in %; ours: budget {budget}, scaled: {scaled}."
        print_lines("", title)
        print_table(comparison.HEADER, cells, comparison.HEADER[1:5])
        for line in comparison.correlations(experiment, found):
            print_lines(f"{line} (budget {budget}).")
    for observation in OBSERVATIONS:
        if rows & set(observation.rows):
            told = verdict(observation, found)
            title = f"observation {told.number}, budget {budget}: {told.text}"
            print_lines("", title, f"  {told.verdict}: {told.why}")


def _responses(figure: Experiment, found: dict[str, Outcome], path: Path) -> None:
    """Figure 7 as a table and, where it can be drawn, as a picture. Older results do not have it."""
    cells = responses.lines(figure, found)
    missing = [cell.label for cell in figure.cells if cell.label not in {line[0] for line in cells}]
    print_lines(
        "",
        f"Standard deviations of the layers' responses, after BN, before ReLU or addition, budget {path.parent.name}:",
    )
    print_table(responses.HEADER, cells, responses.HEADER[1:])
    if missing:
        why = "They have not been run, or were before responses were measured and"
        print_lines(f"Not measured: {'; '.join(missing)}. {why}", "have left no weights in --out.")
    if cells:
        try:
            print_lines(responses.draw(figure, found, path))
        except UserError as error:
            say(f"no picture: {error}")
