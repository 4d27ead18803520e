"""The papers' tables with our values: a column for each budget, numbers with seeds and what was scaled."""

from __future__ import annotations

import math
import re
import statistics

from resnets.experiments.agreement import AGAINST, AGREES, PARTLY, UNDECIDED, find_agreement
from resnets.experiments.comparison import correlate, find_common, remove_common, write_error
from resnets.experiments.observations import FAILS, HOLDS, judge_all
from resnets.experiments.observations import UNDECIDED as NOT_JUDGED
from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Cell, Experiment
from resnets.papers.tables import EXPERIMENTS
from resnets.report.page import provenance
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs

SIGNS = {AGREES: "✓", PARTLY: "≈", AGAINST: "✗", UNDECIDED: "?"}
KEY = {
    AGREES: "the paper's order with at least half of the table's other rows, contrary to none; unscaled: its value",
    PARTLY: "the paper's order with some rows, and contrary to no more",
    AGAINST: "contrary to the paper's order with more rows than not; unscaled: another value",
    UNDECIDED: "the spread between seeds is too large to decide, or unknown",
}
_CLAIMS = re.compile("; (?=yes: |no: |not clear: )")
VERDICTS = {HOLDS: (AGREES, "✓"), FAILS: (AGAINST, "✗"), NOT_JUDGED: (UNDECIDED, "?")}
TABLES = [e for e in EXPERIMENTS.values() if not e.name.startswith("figure")]  # the figures have the same rows


def build_table(caption: str, header: list[object], rows: list[Html]) -> Html:
    """A table that scrolls sideways on a narrow screen."""
    head = tag("tr", *(tag("th", words, scope="col") for words in header))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def build_key() -> Html:
    """What the signs mean."""
    terms = [join([tag("dt", SIGNS[word], " ", word, class_=word), tag("dd", KEY[word])]) for word in SIGNS]
    return tag("dl", *terms, class_="key")


# --- the papers' tables -----------------------------------------------------------------------


def build_section(experiment: Experiment, inputs: Inputs) -> Html:
    budgets = inputs.budgets
    header = ["row", "the paper", *(f"ours, budget {budget}" for budget in budgets or ["none"])]
    shared = {budget: find_common(_list_scalings(experiment, inputs, budget)) for budget in budgets}
    rows = [_build_row(cell, experiment, inputs, shared) for cell in experiment.cells]
    split = "errors on held-out training images" if any(r.validation for r in experiment.rows) else "test errors"
    columns = ", top-1/top-5" * any(cell.value.top5 is not None for cell in experiment.cells)
    notes = [
        tag("li", f"Budget {budget}, scaled in all rows: {', '.join(shared[budget]) or 'nothing'}.",
            *(f" {line}." for line in map(_capitalize, map(str, correlate(experiment, inputs.found[budget])))))
        for budget in budgets
        if _list_scalings(experiment, inputs, budget)
    ]  # fmt: skip
    if not notes:
        flag = " --imagenet DIR" if any(row.data == "imagenet" for row in experiment.rows) else ""
        command = tag("code", f"resnets reproduce {experiment.name}{flag}")
        notes = [tag("li", "Missing: ", command, " runs these rows.")]
    return tag(
        "section",
        tag("h3", f"{experiment.where}: {experiment.title}"),
        build_table(f"{experiment.where}: {split}, %{columns}", list(header), rows),
        tag("ul", *notes, class_="note"),
        id=experiment.name,
    )


def _capitalize(words: str) -> str:
    return words[0].upper() + words[1:]


def _list_scalings(experiment: Experiment, inputs: Inputs, budget: str) -> list[tuple[str, ...]]:
    """What was scaled in each cell that has a result."""
    return [one.scaled for one in map(inputs.found[budget].find, experiment.cells) if one]


def _build_row(cell: Cell, experiment: Experiment, inputs: Inputs, shared: dict[str, tuple[str, ...]]) -> Html:
    values = [_build_value(cell, experiment, inputs.found[b], b, shared[b]) for b in inputs.budgets]
    values = values or [_mark_missing(cell)]
    return tag(
        "tr", tag("th", cell.full_label, scope="row"), tag("td", _write_plus_minus(str(cell.value)) or "-"), *values
    )


def _build_value(cell: Cell, experiment: Experiment, found: Outcomes, budget: str, shared: tuple[str, ...]) -> Html:
    one = found.find(cell)
    if one is None:
        return _mark_missing(cell)
    number = provenance.build_button(provenance.name_box(budget, one.row), _write_plus_minus(write_error(one)))
    agrees = find_agreement(cell, experiment, found)
    sign = tag("span", SIGNS[agrees.word], " ", agrees.word, class_="sign", title=agrees.why) if agrees else ""
    details = [f"{len(one.runs)} seed{'s' * (len(one.runs) > 1)}"]
    losses = [loss for loss in one.values("final") if math.isfinite(loss)]
    if losses:
        details.append(f"training loss {statistics.fmean(losses):.3f}")
    details += remove_common(one.scaled, shared)
    return tag("td", number, " ", sign, tag("small", ", ".join(details)), class_=agrees.word if agrees else None)


def _mark_missing(cell: Cell) -> Html:
    return tag("td", "missing", class_="missing") if cell.row else tag("td", "quoted", class_="quoted")


def _write_plus_minus(words: str) -> str:
    return words.replace("+-", "±")


# --- the observations, and all at a glance ----------------------------------------------------


def build_verdicts(inputs: Inputs) -> Html:
    budgets = inputs.budgets
    verdicts = {budget: judge_all(inputs.found[budget]) for budget in budgets} or {"none": judge_all(Outcomes())}
    rows = []
    for i, first in enumerate(next(iter(verdicts.values()))):
        cells = []
        for judged in verdicts.values():
            style, sign = VERDICTS[judged[i].verdict]
            reasons = tag("ul", *(tag("li", _write_plus_minus(part)) for part in _CLAIMS.split(judged[i].why)))
            seen = tag("details", tag("summary", sign, " ", judged[i].verdict), reasons)
            cells.append(tag("td", seen, class_=style))
        text = tag("th", f"{first.number}. {_capitalize(first.text)}", scope="row")
        rows.append(tag("tr", text, *cells))
    return build_table(
        "The papers' observations and our verdicts", ["observation", *(f"budget {b}" for b in verdicts)], rows
    )


def build_glance(inputs: Inputs) -> Html:
    """How many rows have results and how they compare with the papers, in a column for each budget."""
    budgets = inputs.budgets
    lines: dict[str, list[str]] = {"rows with results": [], "observations": []}
    every = {row.name for experiment in EXPERIMENTS.values() for row in experiment.rows}
    for budget in budgets:
        found = inputs.found[budget]
        lines["rows with results"].append(f"{len(every & set(found))} of {len(every)}")
        judged = [one.verdict for one in judge_all(found)]
        lines["observations"].append(", ".join(f"{word}: {judged.count(word)}" for word in VERDICTS))
        for experiment in TABLES:
            values = [f"{c.value:+.2f} ({c.rows} rows, {c.data})" for c in correlate(experiment, found)]
            line = lines.setdefault(f"rank correlation, {experiment.where}", [])
            line.append("; ".join(values) or "not enough rows")
    rows = [
        tag("tr", tag("th", words, scope="row"), *(tag("td", value) for value in values))
        for words, values in lines.items()
        if any(value != "not enough rows" for value in values)
    ]
    return build_table("What there is, by budget", ["what", *(f"budget {budget}" for budget in budgets)], rows)
