"""The papers' tables with our values beside theirs, each column a small chart; rows not run are folded away."""

from __future__ import annotations

import math
import statistics

from resnets.experiments.agreement import AGAINST, AGREES, PARTLY, UNDECIDED, Agreement, find_agreement
from resnets.experiments.comparison import correlate, find_common, remove_common
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Cell, Experiment, Value
from resnets.papers.tables import EXPERIMENTS
from resnets.report.page import numbers
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs
from resnets.report.page.strip import Axis, build_strip

SIGNS = {AGREES: "✓", PARTLY: "≈", AGAINST: "✗", UNDECIDED: "?"}
KEY = {
    AGREES: "Our row stands where the paper's does: above and below the same rows, as far as the seeds can tell.",
    PARTLY: "Some rows stand on the same side of this one as in the paper, and no more on the other side.",
    AGAINST: "More rows stand on the other side of this one than in the paper.",
    UNDECIDED: "The runs with other seeds differ as much as the rows do, or there is no second seed.",
}
TABLES = [e for e in EXPERIMENTS.values() if not e.name.startswith("figure")]  # the figures have the same rows


def build_table(caption: str, header: list[object], rows: list[Html], kind: str = "") -> Html:
    """A table that scrolls sideways on a narrow screen."""
    head = tag("tr", *(tag("th", words, scope="col") for words in header))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows), class_=kind or None)
    return tag("div", whole, class_="scroll", tabindex="0", role="group", aria_label=caption)


def build_key() -> Html:
    """What the signs mean."""
    terms = [join([tag("dt", SIGNS[word], " ", word, class_=word), tag("dd", KEY[word])]) for word in SIGNS]
    return tag("dl", *terms, class_="key")


def build_section(inputs: Inputs) -> Html:
    """Every table that has results, and a fold with those that have none."""
    there = [experiment for experiment in TABLES if inputs.rank_budgets(experiment)]
    absent = [experiment for experiment in TABLES if experiment not in there]
    parts = [_build_experiment(experiment, inputs) for experiment in there]
    if absent:
        inner = [tag("h3", f"{e.where}: {e.title}", id=e.name) + _list_missing(e, e.cells) for e in absent]
        parts.append(build_fold(f"{len(absent)} tables that were not run", join(map(Html, inner))))
    return join(parts)


def build_fold(summary: object, *inner: object) -> Html:
    return tag("details", tag("summary", summary), *inner, class_="fold")


def _build_experiment(experiment: Experiment, inputs: Inputs) -> Html:
    first, *others = inputs.rank_budgets(experiment)
    parts = [tag("h3", f"{experiment.where}: {experiment.title}"), build_comparison(experiment, inputs, first)]
    parts += [
        build_fold(f"The same at budget {budget}", build_comparison(experiment, inputs, budget)) for budget in others
    ]
    return tag("section", *parts, id=experiment.name)


def build_comparison(experiment: Experiment, inputs: Inputs, budget: str, *, short: bool = False) -> Html:
    """A table at one budget: the paper's numbers and ours, what was scaled, and which rows were not run. The short one
    has no verdicts."""
    found = inputs.found[budget]
    cells = [cell for cell in experiment.cells if found.find(cell) or (cell.row is None and not short)]
    ours = {cell: one for cell in cells if (one := found.find(cell))}
    shared = find_common(one.scaled for one in ours.values())
    paper = Axis.around(_list_values(cell.value) for cell in cells)
    own = Axis.around(value for one in ours.values() for value in _list_errors(one))
    rows = [
        tag(
            "tr",
            tag("th", cell.full_label, scope="row"),
            _build_paper(cell.value, paper),
            _build_ours(ours.get(cell), own, shared),
            "" if short else _build_verdict(cell, experiment, found),
        )
        for cell in cells
    ]
    header: list[object] = [
        "row", join(["the paper ", paper.build_ends()]), join([f"ours, budget {budget} ", own.build_ends()])
    ]  # fmt: skip
    split = "errors on held-out training images" if any(r.validation for r in experiment.rows) else "test errors"
    columns = ", top-1/top-5" * any(cell.value.top5 is not None for cell in cells)
    caption = f"{experiment.where}: {split}, %{columns}"
    table = build_table(caption, header if short else [*header, "verdict"], rows, "strips")
    missing = [cell for cell in experiment.cells if cell.row and cell not in ours]
    return join([table, _build_notes(experiment, found, budget, shared), _fold_missing(experiment, missing, budget)])


def _list_values(value: Value) -> float:
    """The number that is drawn: top-1 where there are two."""
    return next((number for number in (value.error, value.top5) if number is not None), math.nan)


def _list_errors(one: Outcome) -> list[float]:
    interval = numbers.find_interval(one)
    return [*one.values("error"), *(interval or ())]


def _build_paper(value: Value, axis: Axis) -> Html:
    words = numbers.write_plus_minus(str(value))
    drawn = build_strip(axis, math.inf if value.fails else _list_values(value), kind="paper") if words else ""
    return tag("td", tag("div", tag("span", words or "only drawn", class_="number"), drawn, class_="paired"))


def _build_ours(one: Outcome | None, axis: Axis, shared: tuple[str, ...]) -> Html:
    if one is None:
        return tag("td", "another system's, quoted", class_="quoted")
    errors, interval = one.values("error"), numbers.find_interval(one)
    besides = remove_common(one.scaled, shared)
    return tag(
        "td",
        tag(
            "div",
            tag("span", numbers.build_number(one), class_="number"),
            build_strip(axis, statistics.median(errors), interval, kind="ours"),
            class_="paired",
        ),
        tag("small", f"scaled besides: {', '.join(besides)}") if besides else "",
    )


def _build_verdict(cell: Cell, experiment: Experiment, found: Outcomes) -> Html:
    agrees = find_agreement(cell, experiment, found)
    if agrees is None:
        return tag("td", "-")
    sign = tag("strong", SIGNS[agrees.word], " ", agrees.word, class_=f"chip {agrees.word}")
    return tag("td", sign, tag("small", _explain(agrees, found.spread("error") is not None)))


def _explain(agrees: Agreement, has_seeds: bool) -> str:
    """The reason in a sentence. Unscaled rows compare values, and have no rows to count."""
    counted = agrees.same + agrees.contrary + agrees.unclear
    if not counted:
        return f"{capitalize(agrees.why)}."
    if not has_seeds:
        return "No row has a second seed, so it is unknown how much runs differ by chance."
    parts = [f"On the same side of it as in the paper: {agrees.same} of {counted} other rows"]
    parts += [f"on the other side: {agrees.contrary}"] * bool(agrees.contrary)
    parts += [f"too close to tell: {agrees.unclear}"] * bool(agrees.unclear)
    return f"{'; '.join(parts)}."


def _build_notes(experiment: Experiment, found: Outcomes, budget: str, shared: tuple[str, ...]) -> Html:
    notes = [f"Scaled in all rows at budget {budget}: {', '.join(shared) or 'nothing'}."]
    notes += [f"{capitalize(str(line))}." for line in correlate(experiment, found)]
    return tag("ul", *(tag("li", note) for note in notes), class_="note")


def capitalize(words: str) -> str:
    return words[0].upper() + words[1:]


def _fold_missing(experiment: Experiment, cells: list[Cell], budget: str) -> Html:
    if not cells:
        return Html()
    words = f"{len(cells)} row{'s' * (len(cells) > 1)} not run at budget {budget}"
    return build_fold(words, _list_missing(experiment, cells, budget))


def _list_missing(experiment: Experiment, cells: tuple[Cell, ...] | list[Cell], budget: str = "") -> Html:
    """Rows without a result of ours, with the paper's numbers and the command that runs them."""
    flag = " --imagenet DIR" if any(cell.row and cell.row.data == "imagenet" for cell in cells) else ""
    command = f"resnets reproduce {experiment.name}{f' --budget {budget}' * bool(budget)}{flag}"
    items = [
        tag("li", f"{cell.full_label}: the paper {numbers.write_plus_minus(str(cell.value)) or 'only draws a curve'}; ",
            tag("em", "not run" if cell.row else "another system's, quoted"))
        for cell in cells
    ]  # fmt: skip
    runs = [tag("p", tag("code", command), " runs them.")] if any(cell.row for cell in cells) else []
    return tag("div", tag("ul", *items), *runs, class_="missing")
