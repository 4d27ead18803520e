"""What each budget costs, and what its results have shown so far: `resnets reproduce --list`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS, Budget
from resnets.experiments.comparison import Correlation, correlate
from resnets.experiments.observations import Verdict, judge_all
from resnets.experiments.outcomes import Outcomes
from resnets.experiments.plan import choose_rows, make_jobs
from resnets.experiments.price import Price, price_job
from resnets.experiments.results import RowFile
from resnets.papers.tables import EXPERIMENTS

_TABLE2 = EXPERIMENTS["table2"]
ORDERS = {  # whose order is compared with the papers'
    "table1": EXPERIMENTS["table1"],
    "table2, 110 layers": replace(_TABLE2, cells=tuple(cell for cell in _TABLE2.cells if "-110 " in cell.label)),
    **{name: EXPERIMENTS[name] for name in ("table2", "table3", "plain-cifar")},
}


@dataclass(frozen=True)
class BudgetStatus:
    """A budget with its price and its results. Rows on ImageNet are counted, and not priced: their number of images is
    that of a folder."""

    budget: Budget
    rows: int  # on CIFAR
    done: int  # of these, with at least one run
    price: Price  # of all runs of the rows on CIFAR
    left: Price  # of those that have no result yet
    imagenet: int  # rows on ImageNet
    imagenet_done: int
    correlations: tuple[tuple[str, Correlation], ...]  # by experiment
    verdicts: tuple[Verdict, ...]  # on the seven observations

    def count(self, verdict: str) -> int:
        return sum(one.verdict == verdict for one in self.verdicts)


def list_budgets(
    results: str | Path = "results", leave_out: Callable[[UserError], None] | None = None
) -> list[BudgetStatus]:
    """Every budget: what it costs, which rows have results in a folder, and what these show.

    A file that cannot be read raises `UserError`, or is given to `leave_out`.

    >>> [(one.budget.name, one.done, one.rows) for one in list_budgets("results")]
    """
    return [_describe(budget, Path(results), leave_out) for budget in BUDGETS.values()]


def _describe(budget: Budget, results: Path, leave_out: Callable[[UserError], None] | None) -> BudgetStatus:
    found = Outcomes.read(results / budget.name, leave_out)
    jobs, waiting = make_jobs(choose_rows(EXPERIMENTS.values()), budget)
    done, price, left = 0, Price(), Price()
    for job in jobs:
        runs = RowFile(results, job).runs if job.row.name in found else {}
        one = price_job(job)
        done += bool(runs)
        price += one * len(job.seeds)
        left += one * sum(seed not in runs for seed in job.seeds)
    return BudgetStatus(
        budget,
        len(jobs),
        done,
        price,
        left,
        len(waiting),
        sum(name in found for name in waiting),
        tuple((name, each) for name, rows in ORDERS.items() for each in correlate(rows, found)),
        tuple(judge_all(found)),
    )
