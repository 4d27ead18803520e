"""The papers' seven observations, each judged by the results of rows at one budget.

A difference between two rows counts where it is larger than the spread between seeds explains (Student's t, 5 %),
the spread being pooled over all rows of the budget. Everything else is undecided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Claim:
    """A part of an observation: 1 where the results say so, -1 where they say the contrary, 0 where neither."""

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
    known = f"seeds' spread {noise.std:.2g}" if noise else "no row that learned has two seeds to tell the spread"
    return f"{METRICS[metric]}; {known}"


def judge_claims(claims: list[Claim]) -> tuple[str, str]:
    """All claims must hold; one that is contradicted contradicts the whole."""
    signs = [claim.sign for claim in claims]
    verdict = FAILS if -1 in signs else HOLDS if signs and all(sign == 1 for sign in signs) else UNDECIDED
    words = {1: "yes", -1: "no", 0: "not told apart"}
    return verdict, "; ".join(f"{words[claim.sign]}: {claim.why}" for claim in claims)


# --- the observations -------------------------------------------------------------------------

IDENTITY = Row("resnet110")
FIGURE3 = tuple(map(shortcut, ("scale:0.5:0.5", "exclusive_gate:-6", "shortcut_gate:0", "conv1x1")))  # (a) to (d)
BN_AFTER, RELU_BEFORE = order(110, "bn_after_add"), order(110, "relu_before_add")
SHALLOW, DEEP = 20, (56, 110)


def _deep_original_is_slow(of: Outcomes) -> list[Claim]:
    return [claim_higher(of, Row("resnet1001"), Row("preresnet1001"), "early")]


def _shortcuts_train_worse(of: Outcomes) -> list[Claim]:
    return [claim_higher(of, row, IDENTITY, "final") for row in FIGURE3]


def _bn_after_is_slow(of: Outcomes) -> list[Claim]:
    return [claim_higher(of, BN_AFTER, IDENTITY, "early")]


def _relu_before_grows(of: Outcomes) -> list[Claim]:
    growing, usual = _shares_of_growing_units(of[RELU_BEFORE.name]), _shares_of_growing_units(of[IDENTITY.name])
    if not growing or not usual:
        return [Claim(0, "the signal was not measured")]
    sign = -1 if min(growing) < 1 else 0 if max(usual) == 1 else 1
    why = f"the signal grows in {100 * min(growing):.0f} % of the units that keep its size, in the original unit in "
    return [Claim(sign, why + f"{100 * max(usual):.0f} %")]


def _shares_of_growing_units(one: Outcome) -> list[float]:
    """For each run, the share of units that make the signal larger, of those that leave its dimension alone."""
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


def _truncation_grows_with_depth(of: Outcomes) -> list[Claim]:
    return [claim_higher(of, Row("resnet1001"), Row("resnet164"), "truncation")]


def _preactivation_regularises(of: Outcomes) -> list[Claim]:
    original, preactivated = Row("resnet164"), Row("preresnet164")
    return [claim_higher(of, preactivated, original, "final"), claim_higher(of, original, preactivated, "error")]


def _plain_degrades(of: Outcomes) -> list[Claim]:
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
    rows: tuple[Row, ...]  # without any one of which it cannot be judged
    check: Callable[[Outcomes], list[Claim]]


OBSERVATIONS = (
    Observation(
        1, "with the original unit the loss of ResNet-1001 falls slowly at first, with full pre-activation fast (v2 "
        "Figure 1)", (Row("resnet1001"), Row("preresnet1001")), _deep_original_is_slow,
    ),
    Observation(
        2, "scaled, gated and 1x1 shortcuts end with a higher training loss than identity (v2 Figure 3)",
        (IDENTITY, *FIGURE3), _shortcuts_train_worse,
    ),
    Observation(
        3, "BN after addition makes the early training slow (v2 Figure 6, left)", (IDENTITY, BN_AFTER),
        _bn_after_is_slow,
    ),
    Observation(
        4, "ReLU before addition makes the signal grow monotonically (v2 Section 4.1)", (IDENTITY, RELU_BEFORE),
        _relu_before_grows,
    ),
    Observation(
        5, "the ReLU after the addition truncates more of y_l at 1001 layers than at 164 (v2 Section 4.2)",
        (Row("resnet164"), Row("resnet1001")), _truncation_grows_with_depth,
    ),
    Observation(
        6, "pre-activation ends with a slightly higher training loss and a lower test error (v2 Figure 6, right)",
        (Row("resnet164"), Row("preresnet164")), _preactivation_regularises,
    ),
    Observation(
        7, "plain nets degrade with depth, residual nets do not (v1 Figure 6)", _SHALLOWS, _plain_degrades,
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
