"""The papers' seven observations in a student's words, with our verdicts and their reasons."""

from __future__ import annotations

import re

from resnets.experiments.agreement import AGAINST, AGREES, UNDECIDED
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.observations import FAILS, HOLDS, Verdict, judge_all, judge_best
from resnets.experiments.observations import UNDECIDED as NOT_JUDGED
from resnets.experiments.outcomes import Outcomes
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs
from resnets.report.page.numbers import write_plus_minus
from resnets.report.page.tables import build_fold, build_table, capitalize

STYLES = {HOLDS: (AGREES, "✓"), FAILS: (AGAINST, "✗"), NOT_JUDGED: (UNDECIDED, "?")}
SENTENCES = {
    HOLDS: "Our runs show it too.",
    FAILS: "Our runs show the contrary.",
    NOT_JUDGED: "Our runs cannot tell.",
}
MEANINGS = {  # why an observation matters, for a student
    1: "A ReLU after each of 333 additions holds the signal back until the weights have adapted; without it, learning "
    "begins at once.",
    2: "A shortcut that does more than pass x on makes the network harder to train, even where it could represent the "
    "identity.",
    3: "BN behind the addition changes the signal on its way along the shortcut, which no later unit can undo.",
    4: "What a ReLU lets through is never negative, so a unit that adds it can only make the signal larger.",
    5: "The deeper the network, the more of the signal the ReLU behind the addition cuts away.",
    6: "BN in front of every weight makes the network fit the training images a little less and other images better.",
    7: "Without shortcuts more layers make even the training worse. It is not overfitting: the deeper net could copy "
    "the shallower one.",
}
_CLAIMS = re.compile("; (?=yes: |no: |not clear: )")


def build_section(inputs: Inputs) -> Html:
    """A card for each observation at the most thorough budget that has its rows; the other budgets in a fold."""
    budgets = inputs.budgets
    judged = {budget: judge_all(inputs.found[budget]) for budget in budgets} or {"none": judge_all(Outcomes())}
    best = [
        one.budget or next(iter(judged)) for one in judge_best({budget: inputs.found[budget] for budget in budgets})
    ]
    cards = [_build_card({name: verdicts[i] for name, verdicts in judged.items()}, best[i]) for i in range(len(best))]
    counts = _build_counts(inputs, judged)
    return join([tag("ol", *cards, class_="cards"), build_fold("How much there is at each budget", counts)])


def _build_card(verdicts: dict[str, Verdict], budget: str) -> Html:
    """The verdict of a budget with its reasons, and those of the others."""
    one, others = verdicts[budget], [name for name in verdicts if name != budget]
    style, sign = STYLES[one.verdict]
    parts = [
        tag("h3", f"{one.number}. {capitalize(one.text)}"),
        tag("p", MEANINGS[one.number]),
        tag("p", tag("strong", sign, " ", one.verdict, class_=f"chip {style}"), " ", SENTENCES[one.verdict],
            tag("small", f" Budget {budget}.")),
        build_fold("Why", _list_reasons(one), *(_build_other(name, verdicts[name]) for name in others)),
    ]  # fmt: skip
    return tag("li", *parts)


def _build_other(budget: str, one: Verdict) -> Html:
    return join([tag("p", f"Budget {budget}: {one.verdict}."), _list_reasons(one)])


def _list_reasons(one: Verdict) -> Html:
    return tag("ul", *(tag("li", write_plus_minus(part)) for part in _CLAIMS.split(one.why)))


def _build_counts(inputs: Inputs, judged: dict[str, list[Verdict]]) -> Html:
    rows = []
    for budget, verdicts in judged.items():
        words = [one.verdict for one in verdicts]
        cells = [
            str(len(inputs.found.get(budget, ()))),
            ", ".join(f"{word}: {words.count(word)}" for word in STYLES),
            BUDGETS[budget].text if budget in BUDGETS else "-",
        ]
        rows.append(tag("tr", tag("th", budget, scope="row"), *(tag("td", cell) for cell in cells)))
    header: list[object] = ["budget", "rows with results", "observations", "what it trains"]
    return build_table("What there is, by budget", header, rows)
