"""What the papers' tables would cost on GPUs: an estimate from multiply-adds, for docs/scale.md.

No GPU was measured. `ASSUMED` is printed above the table, so that a reader can put in other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from resnets.analysis.complexity import complexity
from resnets.experiments.budgets import BUDGETS, CLASSES
from resnets.experiments.detection import price_row
from resnets.experiments.plan import CIFAR_IMAGES, CIFAR_TESTED, IMAGENET_IMAGES, IMAGENET_TESTED, choose_rows
from resnets.papers import detection
from resnets.papers.rows import Experiment, Row
from resnets.papers.tables import EXPERIMENTS
from resnets.recipe import RECIPES, iterations
from resnets.zoo import spec_of
from tools.tables.performance import write_markdown

GPUS = 8


@dataclass(frozen=True)
class Gpu:
    """What is assumed of a GPU."""

    peak: float = 19.5e12  # float32 operations a second
    reached: float = 0.4  # share of the peak that a training reaches
    launches: int = 10  # kernels that a layer launches in a step: forward, backward and update
    launch: float = 5e-6  # seconds from one launch to the next


ASSUMED = Gpu()


@dataclass(frozen=True)
class Cost:
    """The cost of some trainings with their tests."""

    operations: float = 0.0  # multiply-adds
    seconds: float = 0.0  # on one GPU

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.seconds + other.seconds)


@cache
def price(row: Row) -> Cost:
    """All runs of a row by the papers' protocol, with the rows that it learns from."""
    recipe = RECIPES[row.recipe]
    spec = spec_of(row.network, **dict(row.changes), num_classes=CLASSES[row.data])
    images, tested = (IMAGENET_IMAGES, IMAGENET_TESTED) if row.data == "imagenet" else (CIFAR_IMAGES, CIFAR_TESTED)
    steps = iterations(recipe.length, images - row.validation, recipe.batch)
    once = complexity(spec).multiply_adds
    training = 3 * once * recipe.batch  # of a step: the backward pass is two products for each one of the forward pass
    testing = once * tested * steps * recipe.batch / (images - row.validation)  # after every epoch, for the curve
    launched = ASSUMED.launches * spec.depth * ASSUMED.launch
    seconds = steps * max(_compute_time(training), launched) + _compute_time(testing)
    budget = BUDGETS["paper"]
    runs = (budget.imagenet.seeds if row.data == "imagenet" else None) or budget.seeds
    own = Cost(runs * (steps * training + testing), runs * seconds)
    return sum((price(needed) for needed in (row.teacher, row.begins) if needed is not None), own)


def _compute_time(operations: float) -> float:
    return 2 * operations / (ASSUMED.peak * ASSUMED.reached)  # a multiply-add is two operations


def price_rows(rows: Iterable[Row]) -> Cost:
    return sum(map(price, rows), Cost())


def write_costs(results: Path) -> str:
    """A line for each table: rows, multiply-adds, time on one GPU, and on eight as `--shard` divides the rows."""
    lines = [write_line(f"`{each.name}`: {each.where}", [each]) for each in EXPERIMENTS.values() if each.rows]
    lines.append(write_line("`all`: each row once", list(EXPERIMENTS.values())))
    lines.append(_write_detection())
    header = ["table", "rows", "multiply-adds", "hours on one GPU", f"hours on {GPUS} GPUs"]
    return f"{write_markdown(header, lines)}\n\n{_describe_assumptions()}"


def write_line(name: str, experiments: list[Experiment]) -> list[str]:
    rows = choose_rows(experiments)
    whole = price_rows(rows)
    shards = [price_rows(choose_rows(experiments, shard=f"{i}/{GPUS}")).seconds for i in range(1, GPUS + 1)]
    return _write_cells(name, len(rows), whole.operations, whole.seconds, max(shards))


def _write_detection() -> list[str]:
    rows = list(dict.fromkeys(cell.row for table in detection.BUDGETS["paper"] for cell in table.cells if cell.row))
    costs = [price_row(row)[1] for row in rows]
    seconds = [_compute_time(cost) for cost in costs]
    name = "`detection`: v1 Tables 7, 8 and 9"
    return _write_cells(name, len(rows), sum(costs), sum(seconds), max(sum(seconds[i::GPUS]) for i in range(GPUS)))


def _write_cells(name: str, rows: int, operations: float, one: float, many: float) -> list[str]:
    return [name, str(rows), f"{operations:.1e}", _write_hours(one), _write_hours(many)]


def _write_hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"


def _describe_assumptions() -> str:
    return (
        f"*An estimate; nothing of it was measured. It assumes GPUs of {ASSUMED.peak / 1e12:g} float32 TFLOP/s, of "
        f"which a training reaches {ASSUMED.reached:.0%}; a backward pass of twice the cost of the forward pass; "
        f"{ASSUMED.launches} launches of {ASSUMED.launch * 1e6:g} µs for each layer in a step, and a step as long as "
        "the longer of arithmetic and launches; the protocol and the runs of the budget `paper`; a test by one view "
        "after each epoch; data that never makes the GPU wait.*"
    )


TABLES = {"scale-costs": write_costs}
