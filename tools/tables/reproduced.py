"""The papers' experiments: tables for README and docs, the observations, and Figure 1 as a picture.

A table is shown at the best budget that has it; those of other budgets are on pages of their own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from resnets.experiments.agreement import find_agreement
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.comparison import NOT_RUN, correlate, find_common, write_error
from resnets.experiments.observations import FAILS, HOLDS, OBSERVATIONS, UNDECIDED, Observation, judge_best
from resnets.experiments.outcomes import Outcomes
from resnets.experiments.plan import make_job
from resnets.experiments.price import Price, price_job
from resnets.experiments.status import BudgetStatus, list_budgets
from resnets.papers.rows import Cell, Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report.curves import Curve, build_figure
from resnets.report.pictures import require_matplotlib, save
from tools.tables.themes import COLOURS, write_picture

PUBLISHED = tuple(name for name in BUDGETS if name != "smoke")  # the best first; smoke only shows that it runs
SHOWN = ("table1", "table2", "table3", "plain-cifar", "table4", "other-cifar", "gate-bias")  # in docs
_LINES = ("#7d7d7d", "#d64545")  # seen on light and on dark
README, DOCS = "", "../"  # from a page to the root
_DAY = 24.0  # hours


def find_budgets(experiment: Experiment, results: Path) -> dict[str, Outcomes]:
    """The budgets that have rows of an experiment, with all their rows. First comes the most thorough one that has at
    least half as many rows as any other: a few rows have no order."""
    found = {budget: Outcomes.read(results / budget) for budget in PUBLISHED}
    counts = {budget: sum(row.name in found[budget] for row in experiment.rows) for budget in PUBLISHED}
    there = [budget for budget in PUBLISHED if counts[budget]]
    most = max(counts.values())
    return {budget: found[budget] for budget in sorted(there, key=lambda budget: 2 * counts[budget] < most)}


def describe_missing(experiment: Experiment) -> str:
    command = f"resnets reproduce {experiment.name} --budget hour"
    where = f"{experiment.where} ({experiment.title})"
    return f"{where} has not been run yet: `{command}` runs it, and `make tables` puts it here."


def write_scaled(experiment: Experiment, outcomes: Outcomes) -> str:
    there = [outcomes[row.name].scaled for row in experiment.rows if row.name in outcomes]
    return ", ".join(find_common(there)) or "nothing"


def write_table(name: str, results: Path, root: str = README) -> str:
    """An experiment at its best budget, with a link to what the other budgets have."""
    experiment = EXPERIMENTS[name]
    if not (found := find_budgets(experiment, results)):
        return describe_missing(experiment)
    best, *others = found
    there = "docs/" if root == README else ""
    links = [f"[`{budget}`]({there}reproduce-{budget}.md)" for budget in others if budget == "hour"]
    also = [f"Other budgets: {', '.join(links)}."] if links else []
    return "\n".join([_write_budget(experiment, best, found[best], root), *also])


def _write_budget(experiment: Experiment, budget: str, outcomes: Outcomes, root: str) -> str:
    lines = [
        f"| {experiment.where}: {experiment.title} | the paper, % | ours, budget `{budget}`, % | the paper's order |",
        "|---|---|---|---|",
    ]
    for cell in experiment.cells:
        agrees = find_agreement(cell, experiment, outcomes)
        word = f"{agrees.word} ({agrees.why})" if agrees else "-"
        lines.append(
            f"| {cell.label} | {str(cell.value) or '-'} | {_write_number(cell, outcomes, budget, root)} | {word} |"
        )
    notes = [
        f"Scaled: {write_scaled(experiment, outcomes)}.",
        *(f"{str(c).capitalize()}." for c in correlate(experiment, outcomes)),
    ]
    return "\n".join([*lines, "", *notes])


def _write_number(cell: Cell, outcomes: Outcomes, budget: str, root: str) -> str:
    one = outcomes.find(cell)
    if one is None:
        return NOT_RUN
    runs = f"{len(one.runs)} run{'s' * (len(one.runs) > 1)}"
    return f"[{write_error(one)}]({root}results/{budget}/{one.row}.json), {runs}"


def write_tables(results: Path) -> str:
    """All experiments on CIFAR, each at its best budget."""
    return "\n\n".join(write_table(name, results, DOCS) for name in SHOWN)


def write_hour(results: Path) -> str:
    """The experiments on CIFAR that have rows at the budget `hour`, and are shown at a better one elsewhere."""
    tables = []
    for experiment in (EXPERIMENTS[name] for name in SHOWN):
        if "hour" in [*find_budgets(experiment, results)][1:]:
            tables.append(_write_budget(experiment, "hour", Outcomes.read(results / "hour"), DOCS))
    return "\n\n".join(tables) or "No table has results at a better budget yet."


# --- the observations and the budgets ---------------------------------------------------------


def write_observations(results: Path) -> str:
    """Each by the best budget that has its rows; an undecided one says what deciding it would take."""
    verdicts = judge_best({budget: Outcomes.read(results / budget) for budget in PUBLISHED})
    lines = ["| | observation | verdict | budget | why |", "|---|---|---|---|---|"]
    for observation, one in zip(OBSERVATIONS, verdicts, strict=True):
        why = f"{one.why}; {_describe_effort(observation)}" if one.verdict == UNDECIDED else one.why
        budget = f"`{one.budget}`" if one.budget else "-"
        lines.append(f"| {one.number} | {one.text} | {one.verdict} | {budget} | {why} |")
    return "\n".join(lines)


def _describe_effort(observation: Observation) -> str:
    prices = [price_job(make_job(row, BUDGETS["paper"])) for row in observation.rows]
    hours = sum(prices, Price()).hours
    time = f"{hours / _DAY:.0f} days" if hours > 2 * _DAY else f"{hours:.0f} hours"
    return f"unscaled, one seed of its rows takes two cores about {time}"


def write_status(results: Path) -> str:
    """What each budget costs on CIFAR, and what it has shown."""
    lines = [
        "| budget | multiply-adds | rows with results | rank correlation | holds | does not hold | undecided |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_write_status(one) for one in list_budgets(results) if one.budget.name in PUBLISHED)])


def _write_status(one: BudgetStatus) -> str:
    orders = ", ".join(f"{name} {found.value:+.2f} ({found.rows} rows)" for name, found in one.correlations)
    counts = " | ".join(str(one.count(word)) for word in (HOLDS, FAILS, UNDECIDED))
    rows = f"{one.done} of {one.rows}"
    price = f"{one.price.multiply_adds / 1e15:,.1f} P"
    return f"| `{one.budget.name}` | {price} | {rows} | {orders or '-'} | {counts} |"


# --- Figure 1 ---------------------------------------------------------------------------------


def write_figure1(results: Path) -> str:
    experiment = EXPERIMENTS["figure1"]
    if not (found := find_budgets(experiment, results)):
        return describe_missing(experiment)
    budget, outcomes = next(iter(found.items()))
    curves = "; ".join(_describe(cell, outcomes) for cell in experiment.cells)
    picture = write_picture("results/figure1", f"{experiment.where}: {curves}")
    return f"{picture}\n\n{experiment.where}, budget `{budget}`. Scaled: {write_scaled(experiment, outcomes)}."


def _describe(cell: Cell, outcomes: Outcomes) -> str:
    one = outcomes.find(cell)
    return f"{cell.label}, " + (f"test error {write_error(one, ' %')}" if one else NOT_RUN)


TABLES = {
    "table1": partial(write_table, "table1"),
    "figure1": write_figure1,
    "papers": write_tables,
    "hour": write_hour,
    "observations": write_observations,
    "budgets": write_status,
}


def draw(results: Path) -> None:
    """Draw Figure 1 into the folder of results, if it was run: loss dashed, on a log axis to the left; error solid."""
    experiment = EXPERIMENTS["figure1"]
    if not (found := find_budgets(experiment, results)):
        return
    matplotlib = require_matplotlib("Figure 1")
    for ending, style in COLOURS.items():
        with matplotlib.rc_context(style):
            curves = _list_curves(experiment, next(iter(found.values())))
            save(build_figure(curves, (7, 4.2)), results / f"figure1{ending}.svg", transparent=True)


def _list_curves(experiment: Experiment, outcomes: Outcomes) -> list[Curve]:
    """Every seed of each cell, the first in full strength and with a name."""
    found = []
    for cell, colour in zip(experiment.cells, _LINES, strict=True):
        one = outcomes.find(cell)
        for i, run in enumerate(one.runs if one else ()):
            name, strength = (_describe(cell, outcomes), 1.0) if i == 0 else (None, 0.45)
            found.append(Curve(run["curves"], "test", colour, name, strength))
    return found
