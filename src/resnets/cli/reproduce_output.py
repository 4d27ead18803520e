"""What `resnets reproduce` prints: the list, or the plan, the runs, the comparison and the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.cli.left_out import LeftOut
from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.detection import HEADER, reproduce_detection
from resnets.experiments.observations import FAILS, HOLDS, UNDECIDED
from resnets.experiments.options import ReproduceOptions, RerunOptions
from resnets.experiments.outcomes import Outcomes
from resnets.experiments.plan import Job, Plan, RowEstimate
from resnets.experiments.reproduce import ConsoleWatcher, Reproduction, reproduce
from resnets.experiments.rerun import rerun
from resnets.experiments.signals import reproduce_signals
from resnets.options import fields_of
from resnets.papers.detection import PAPER
from resnets.papers.tables import EXPERIMENTS
from resnets.papers.variants import list_groups, list_variants
from resnets.text import clock, print_lines, print_table, say

if TYPE_CHECKING:
    from resnets.experiments.status import BudgetStatus

_RERUN = fields_of(RerunOptions).keys() - {"seeds"}  # options of how, not of what
_VERDICTS = (HOLDS, FAILS, UNDECIDED)
_BUSY = 1.25  # times the CPU time of a step: above this, other programs slow it down
_SOON = 60.0  # seconds; shorter plans get no warning


def list_command(results: str) -> int:
    """The experiments, the budgets, and what each budget costs and has shown."""
    cells = [[e.name, e.where, str(len(e.rows)), e.title] for e in EXPERIMENTS.values()]
    rows = {cell.row for table in PAPER for cell in table.cells if cell.row}
    cells.append(
        ["detection", "v1 Tables 7 to 9", str(len(rows)), "Faster R-CNN, ResNet against VGG-16 (paper and day)"]
    )
    units = sum(len(list_variants(*group)) for group in list_groups())
    cells.append(
        ["signals", "v2 Section 2, 3", str(units), "how signals travel through every unit, untrained and trained"]
    )
    print_table(("experiment", "where", "rows", "what"), cells, right=("rows",))
    print_lines()
    print_table(("budget", "seeds", "what"), [[b.name, str(b.seeds), b.text] for b in BUDGETS.values()], ("seeds",))
    from resnets.experiments.status import list_budgets  # imports torch

    left_out = LeftOut()
    found = list_budgets(results, left_out.add)
    header = ("budget", "CIFAR rows run", "ImageNet rows run", "multiply-adds", "hours", "hours left", *_VERDICTS)
    print_lines("", f"What they cost on CIFAR, and what {results} has shown of the seven observations:")
    print_table(header, list(map(_describe_budget, found)), right=header[1:])
    print_lines("Hours: about, on two cores of a server; --dry-run measures the time on this machine.")
    for one in found:
        for name, correlation in one.correlations:
            print_lines(f"{one.budget.name}, {name}: {correlation}.")
    return left_out.code


def _describe_budget(one: BudgetStatus) -> list[str]:
    price = [f"{one.price.multiply_adds / 1e15:,.2f} P", *(_write_hours(p.hours) for p in (one.price, one.left))]
    rows = f"{one.done} of {one.rows}", f"{one.imagenet_done} of {one.imagenet}"
    return [one.budget.name, *rows, *price, *(str(one.count(word)) for word in _VERDICTS)]


def reproduce_command(names: list[str], options: ReproduceOptions) -> int:
    left_out = LeftOut()
    found = reproduce(names, options=options, watcher=_Printer(left_out))
    if not options.dry_run:
        _print_comparison(found, options.budget)
        if EXPERIMENTS["figure7"] in found.experiments:
            _print_responses(found.outcomes, Path(options.results) / options.budget / "figure7.svg")
    return left_out.code


def rerun_command(file: str, names: list[str], given: dict[str, Any]) -> int:
    """`--from FILE`: the file says what is trained, so only options of how to run it apply. 1 if an error differs."""
    if unused := [*names, *(f"--{name.replace('_', '-')}" for name in given if name not in _RERUN)]:
        raise UserError(f"--from takes what it trains from the file; leave out {', '.join(unused)}.")
    found = rerun(file, **given)
    cells = [[str(one.seed), *map(_write_percent, (one.published, one.found)), str(one.path)] for one in found]
    print_table(("seed", "published, %", "now, %", "run"), cells, right=("seed", "published, %", "now, %"))
    same = sum(one.agrees for one in found)
    print_lines(f"{same} of {len(found)} runs have the published error to the digit.")
    return 0 if same == len(found) else 1


def _write_percent(error: float | None) -> str:
    return "diverged" if error is None else f"{error:.2f}"


def detection_command(options: ReproduceOptions) -> int:
    """`reproduce detection`: the plan with prices, the runs, the tables."""
    found = reproduce_detection(options, lambda sentence: print_lines(sentence, flush=True))
    header = ("row", "steps", "multiply-adds", "hours here", "waits for")
    cells = [
        [one.row.name, f"{one.steps:,}", f"{one.cost / 1e15:,.1f} P", _write_hours(one.hours), one.missing]
        for one in found.plan
    ]
    print_table(header, cells, right=header[1:4])
    print_lines("", "Each row is trained by:", *(f"  {one.command}" for one in found.plan))
    for table in found.tables:
        print_lines("", table.title)
        print_table(HEADER, table.cells, HEADER[1:])
    return 0


def signals_command(options: ReproduceOptions) -> int:
    """`reproduce signals`: the analyses for the page's unit explorer."""
    found = reproduce_signals(options, lambda sentence: print_lines(sentence, flush=True))
    if options.dry_run:
        print_lines(*found.written)
    print_lines(f"{len(found.written)} files {'to write' if options.dry_run else 'written'}, {len(found.kept)} kept")
    return 0


def _write_hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


class _Printer(ConsoleWatcher):
    def __init__(self, left_out: LeftOut) -> None:
        self.left_out = left_out

    def leave_out(self, error: UserError) -> None:
        self.left_out.add(error)

    def show_plan(self, plan: Plan) -> None:
        if plan.rows:
            print_lines(f"Budget {plan.budget}; scaled in all rows: {', '.join(plan.scaled) or 'nothing'}.")
            header = ("row", "layers", "steps", "runs left", "time", "CPU time", "memory", "mode", "scaled besides")
            print_table(header, list(map(_describe_row, plan.rows)), right=header[1:7])
        if plan.waiting:
            names = ", ".join(plan.waiting)
            print_lines(f"Waiting for ImageNet, a folder with train and val that --imagenet DIR names: {names}.")
        for row in plan.rows:
            if not row.fits:
                name = row.job.row.name
                print_lines(f"{name} does not fit into memory and is left out; it would with {row.advice}.")
        _print_total(plan.todo)

    def start_run(self, row: RowEstimate, seed: int, number: int, count: int) -> None:
        job = row.job
        print_lines(f"[{number}/{count}] {job.row.name}, budget {job.budget.name}, seed {seed}", flush=True)

    def end_run(self, row: RowEstimate, seed: int, seconds: float) -> None:
        estimate = clock(row.seconds / len(row.seeds))
        print_lines(f"took {clock(seconds)}; estimate for a whole run: {estimate}", flush=True)

    def end_row(self, row: RowEstimate, path: Path, errors: list[str]) -> None:
        print_lines(*(f"{error}: {path}" for error in errors), flush=True)

    def measure_responses(self, job: Job, seed: int, weights: Path) -> None:
        print_lines(f"{job.row.name}, seed {seed}: responses measured from {weights}", flush=True)


def _describe_row(row: RowEstimate) -> list[str]:
    job = row.job
    runs = f"{len(row.seeds)} of {len(job.seeds)}"
    if not row.seeds:
        taken = ["finished", "", "", ""]
    else:
        times = [clock(row.seconds) if row.fits else "", "" if row.cpu_seconds is None else clock(row.cpu_seconds)]
        taken = [*times, f"{row.memory >> 20:,} MiB", row.mode]
    return [job.row.name, str(job.spec.depth), f"{job.steps:,}", runs, *taken, ", ".join(row.scaled_besides)]


def _print_total(rows: list[RowEstimate]) -> None:
    """The time by the clock and the CPU time, with a warning if other programs make the first much longer."""
    total, cpu = sum(row.seconds for row in rows), sum(row.cpu_seconds or 0.0 for row in rows)
    hours = f", {cpu / 3600:.2f} CPU hours" if cpu else ""
    print_lines(f"{len(rows)} rows to run: {clock(total)} at the current load of the machine{hours}.", flush=True)
    idle = sum(row.seconds / max(row.busy, 1.0) for row in rows)
    if total > max(_BUSY * idle, _SOON):
        say(
            f"warning: the machine is busy with other programs: steps take {total / idle:.1f} times as long as their "
            f"CPU time explains. Without these programs it would take about {clock(idle)} instead of {clock(total)}."
        )


def _print_comparison(found: Reproduction, budget: str) -> None:
    """Each experiment compared with the papers, and the observations about its rows."""
    for table in found.tables:
        print_lines("", table.title)
        print_table(table.header, table.cells, table.header[1:5])
        print_lines(*table.notes, end="\n" if table.notes else "")
    for one in found.verdicts:
        print_lines("", f"observation {one.number}, budget {budget}: {one.text}", f"  {one.verdict}: {one.why}")


def _print_responses(found: Outcomes, path: Path) -> None:
    """Figure 7 as a table and, with matplotlib, as a picture. Older results do not have it."""
    from resnets.report import responses

    figure = EXPERIMENTS["figure7"]
    cells = responses.tabulate(figure, found)
    missing = [cell.label for cell in figure.cells if cell.label not in {line[0] for line in cells}]
    what = "Standard deviations of the layers' responses, after BN, before ReLU or addition"
    print_lines("", f"{what}, budget {path.parent.name}:")
    print_table(responses.HEADER, cells, responses.HEADER[1:])
    if missing:
        why = "They have not been run, or were run before responses were measured and"
        print_lines(f"Not measured: {'; '.join(missing)}. {why}", "have left no weights in --out.")
    if cells:
        try:
            print_lines(responses.draw(figure, found, path))
        except UserError as error:
            say(f"no picture: {error}")
