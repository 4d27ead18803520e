"""Decide whether our result of a row agrees with the papers'.

Where nothing was scaled the values are compared. Where something was, only the order can be: a row agrees if it has
the paper's order with at least half of the other rows of its table, by more than the spread between seeds, and the
contrary order with none.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Cell, Experiment, Row

AGREES, PARTLY, AGAINST, UNDECIDED = "agrees", "partly", "against", "undecided"
_PAPER_RUNS = 5  # of which the papers report the median


@dataclass(frozen=True)
class Agreement:
    word: str
    why: str
    same: int = 0  # rows in the paper's order with this one, in the contrary order, and too close to tell
    contrary: int = 0
    unclear: int = 0


def find_agreement(cell: Cell, experiment: Experiment, found: Outcomes) -> Agreement | None:
    """None where we, or the paper, have no number."""
    one, theirs = found.find(cell), cell.value.rank
    if cell.row is None or one is None or theirs is None:
        return None
    found = found.by(cell.test)  # the spread is that of rows with the same test
    return (
        _compare_order(cell, experiment, found)
        if one.scaled
        else _compare_value(cell.row, theirs, cell.value.mean, found)
    )


def _compare_value(row: Row, theirs: float, mean: float | None, found: Outcomes) -> Agreement:
    one = found[row.name]
    if one.fails or math.isinf(theirs):
        same = one.fails and math.isinf(theirs)
        one_fails = "ours fails, the paper's does not" if one.fails else "the paper's fails, ours does not"
        return Agreement(AGREES, "both fail") if same else Agreement(AGAINST, one_fails)
    values = one.values("error")
    difference = statistics.fmean(values) - (theirs if mean is None else mean)
    why = f"{abs(difference):.2f} points {'above' if difference > 0 else 'below'} the paper's"
    noise = found.spread("error")
    if noise is None:
        if one.intervals and one.intervals[0][0] <= theirs <= one.intervals[0][1]:
            return Agreement(AGREES, f"{why}, which lies in the 95 % interval over test images")
        return Agreement(UNDECIDED, f"{why}; no row has two seeds to estimate the spread")
    beyond = found.sign(difference, 1 / len(values) + 1 / _PAPER_RUNS, "error")
    return Agreement(AGAINST if beyond else AGREES, f"{why}; seeds' spread {noise.std:.2g}")


def _compare_order(cell: Cell, experiment: Experiment, found: Outcomes) -> Agreement:
    signs = []  # against each other row: 1 in the paper's order, -1 in the contrary one, 0 where noise hides it
    for theirs, other in _find_peers(cell, experiment, found):
        sign, _ = found.compare(cell.row, other, "error")  # type: ignore[arg-type]
        signs.append(sign * theirs)
    same, contrary, unclear = (signs.count(sign) for sign in (1, -1, 0))
    if not signs:
        return Agreement(UNDECIDED, "there is no other row to compare with")
    if not same + contrary:
        word = UNDECIDED
    elif contrary > same:
        word = AGAINST
    else:
        word = AGREES if not contrary and same >= unclear else PARTLY
    why = [f"same order as the paper against {same} of {len(signs)} rows"]
    why += [f"contrary order against {contrary}"] * bool(contrary) + [f"{unclear} within noise"] * bool(unclear)
    return Agreement(word, ", ".join(why), same, contrary, unclear)


def _find_peers(cell: Cell, experiment: Experiment, found: Outcomes) -> list[tuple[int, Row]]:
    """Other rows with the same data, test and scaling, and 1 if the paper has a higher error of this row, else -1."""
    here, theirs = found.find(cell), cell.value.rank
    peers: dict[Row, int] = {}
    for other in experiment.cells:
        there, rank = found.find(other), other.value.rank
        if cell.row is None or other.row is None or here is None or there is None or theirs is None or rank is None:
            continue
        comparable = (other.row.data, other.test, there.scaled) == (cell.row.data, cell.test, here.scaled)
        if comparable and other.row != cell.row and rank != theirs:
            peers[other.row] = 1 if theirs > rank else -1
    return [(sign, row) for row, sign in peers.items()]
