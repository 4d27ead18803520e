"""The papers' seven observations, each judged by the results of rows at one budget.

A difference between two rows counts where it is larger than the spread between seeds explains (Student's t, 5 %).
The spread is pooled over all rows of the budget. Everything else is undecided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from resnets.experiments.outcomes import METRICS, Outcome, Outcomes
from resnets.papers.rows import Row
from resnets.papers.tables import order, shortcut

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Verdict:
    number: int
    text: str  # what the paper observed
    verdict: str
    why: str
    budget: str = ""  # whose rows decided it, where several were asked


@dataclass(frozen=True)
class Claim:
    """A part of an observation: 1 if the results confirm it, -1 if they contradict it, else 0."""

    sign: int
    why: str


def claim_higher(of: Outcomes, row: Row, than: Row, metric: str) -> Claim:
    """The claim that a row has the higher mean. Rows that a budget scales differently are not compared."""
    if of[row.name].scaled != of[than.name].scaled:
        return Claim(0, f"{row.name} and {than.name} were scaled differently ({METRICS[metric]})")
    sign, difference = of.compare(row, than, metric)
    high, low = (statistics.fmean(of[r.name].values(metric) or (math.nan,)) for r in (row, than))
    return Claim(sign, f"{row.name} {high:.3g}, {than.name} {low:.3g} ({_describe_noise(of, metric, difference)})")


def _describe_noise(of: Outcomes, metric: str, difference: float) -> str:
    noise = of.spread(metric)
    if math.isnan(difference):
        return f"{METRICS[metric]}: not measured"
    known = f"seeds' spread {noise.std:.2g}" if noise else "no row that learned has two seeds to estimate the spread"
    return f"{METRICS[metric]}; {known}"


def judge_claims(claims: list[Claim]) -> tuple[str, str]:
    """The observation holds if all claims do, and fails if one is contradicted."""
    signs = [claim.sign for claim in claims]
    verdict = FAILS if -1 in signs else HOLDS if signs and all(sign == 1 for sign in signs) else UNDECIDED
    words = {1: "yes", -1: "no", 0: "not clear"}
    return verdict, "; ".join(f"{words[claim.sign]}: {claim.why}" for claim in claims)


# --- the observations -------------------------------------------------------------------------

IDENTITY = Row("resnet110")
FIGURE3 = tuple(map(shortcut, ("scale:0.5:0.5", "exclusive_gate:-6", "shortcut_gate:0", "conv1x1")))  # (a) to (d)
BN_AFTER, RELU_BEFORE = order(110, "bn_after_add"), order(110, "relu_before_add")
SHALLOW, DEEP = 20, (56, 110)


def _check_growth(of: Outcomes) -> list[Claim]:
    growing, usual = _measure_growth(of[RELU_BEFORE.name]), _measure_growth(of[IDENTITY.name])
    if not growing or not usual:
        return [Claim(0, "the signal was not measured")]
    sign = -1 if min(growing) < 1 else 0 if max(usual) == 1 else 1
    why = f"the signal grows in {100 * min(growing):.0f} % of the units that keep its size, in the original unit in "
    return [Claim(sign, why + f"{100 * max(usual):.0f} %")]


def _measure_growth(one: Outcome) -> list[float]:
    """For each run, the share of units that make the signal larger, of those that keep its dimension."""
    edges, count = set(), 0
    for units in one.result["network"]["blocks"]:
        edges.add(count)
        count += units
    shares = []
    for run in one.runs:
        if size := run.get("signal", {}).get("size"):
            grown = [size[i + 1] > size[i] for i in range(len(size) - 1) if i not in edges - {0}]
            shares.append(sum(grown) / len(grown))
    return shares


def _check_degradation(of: Outcomes) -> list[Claim]:
    claims = []
    for layers in DEEP:
        plain, residual = Row(f"plain{layers}"), Row(f"resnet{layers}")
        if any(row.name not in of for row in (plain, residual)):
            continue
        claims.append(claim_higher(of, plain, Row(f"plain{SHALLOW}"), "final"))
        worse, growth = of.compare(residual, Row(f"resnet{SHALLOW}"), "final")
        _, plain_growth = of.compare(plain, Row(f"plain{SHALLOW}"), "final")
        seeds = sum(1 / len(of[row.name].values("final")) for row in (plain, residual, *_SHALLOWS))
        less = of.sign(plain_growth - growth, seeds, "final")
        why = f"{residual.name} has {growth:+.3g} against {SHALLOW} layers, the plain net {plain_growth:+.3g}"
        claims.append(Claim(-1 if worse > 0 else less, why))
    return claims


_SHALLOWS = (Row(f"plain{SHALLOW}"), Row(f"resnet{SHALLOW}"))


@dataclass(frozen=True)
class Observation:
    number: int
    text: str
    rows: tuple[Row, ...]  # all are needed to judge it
    check: Callable[[Outcomes], list[Claim]]


def observe_higher(number: int, text: str, *claims: tuple[Row, Row, str]) -> Observation:
    """An observation that one row has a higher mean than another, of a metric; perhaps of several pairs."""
    rows = tuple(dict.fromkeys(row for one, other, _ in claims for row in (other, one)))
    return Observation(number, text, rows, lambda of: [claim_higher(of, *claim) for claim in claims])


OBSERVATIONS = (
    observe_higher(
        1, "with the original unit the loss of ResNet-1001 falls slowly at first, with full pre-activation fast (v2 "
        "Figure 1)", (Row("resnet1001"), Row("preresnet1001"), "early"),
    ),
    observe_higher(
        2, "scaled, gated and 1x1 shortcuts end with a higher training loss than identity (v2 Figure 3)",
        *((row, IDENTITY, "final") for row in FIGURE3),
    ),
    observe_higher(
        3, "BN after addition makes the early training slow (v2 Figure 6, left)", (BN_AFTER, IDENTITY, "early"),
    ),
    Observation(
        4, "ReLU before addition makes the signal grow monotonically (v2 Section 4.1)", (IDENTITY, RELU_BEFORE),
        _check_growth,
    ),
    observe_higher(
        5, "the ReLU after the addition truncates more of y_l at 1001 layers than at 164 (v2 Section 4.2)",
        (Row("resnet1001"), Row("resnet164"), "truncation"),
    ),
    observe_higher(
        6, "pre-activation ends with a slightly higher training loss and a lower test error (v2 Figure 6, right)",
        (Row("preresnet164"), Row("resnet164"), "final"), (Row("resnet164"), Row("preresnet164"), "error"),
    ),
    Observation(
        7, "plain nets degrade with depth, residual nets do not (v1 Figure 6)", _SHALLOWS, _check_degradation,
    ),
)  # fmt: skip


def judge(observation: Observation, found: Outcomes) -> Verdict:
    missing = [row.name for row in observation.rows if row.name not in found]
    if missing:
        return Verdict(observation.number, observation.text, UNDECIDED, f"there is no result of {', '.join(missing)}")
    word, why = judge_claims(observation.check(found))
    return Verdict(observation.number, observation.text, word, why or "there is no deeper net to compare")


def judge_all(found: Outcomes) -> list[Verdict]:
    """All seven, from the rows of one budget."""
    return [judge(observation, found) for observation in OBSERVATIONS]


def judge_best(found: Mapping[str, Outcomes]) -> list[Verdict]:
    """Each observation by the first budget that has all its rows; `found` has the best budget first.

    What the later budgets say is added to the reason.
    """
    return [_judge_best(observation, found) for observation in OBSERVATIONS]


def _judge_best(observation: Observation, found: Mapping[str, Outcomes]) -> Verdict:
    judged = {
        budget: judge(observation, of)
        for budget, of in found.items()
        if all(row.name in of for row in observation.rows)
    }
    if not judged:
        rows = ", ".join(row.name for row in observation.rows)
        return Verdict(observation.number, observation.text, UNDECIDED, f"no budget has results of all of {rows}")
    (best, verdict), *others = judged.items()
    besides = "".join(f"; budget {budget}: {other.verdict}" for budget, other in others)
    return replace(verdict, why=verdict.why + besides, budget=best)
