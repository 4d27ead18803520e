"""Agreement of rows from made-up results: of the order where something was scaled, of the value where nothing was."""

import pytest

from resnets.experiments.agreement import find_agreement
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.tables import EXPERIMENTS

TABLE1 = EXPERIMENTS["table1"]
SCALED = ("700it for 64000it",)


def outcomes(errors, scaled=SCALED, limit=81.0):
    """Two runs a row, a tenth to either side of its error."""
    found = {}
    for cell, error in zip(TABLE1.cells, errors, strict=True):
        if error is not None:
            runs = [{"result": {"test": {"error": error + d}}} for d in (-0.1, 0.1)]
            result = {"recipe": {"validation": 0}, "runs": runs}
            found[cell.row.name] = Outcome(cell.row.name, "hour", scaled, limit, result)
    return Outcomes(found)


def words(errors, **options):
    found = outcomes(errors, **options)
    told = (find_agreement(cell, TABLE1, found) for cell in TABLE1.cells)
    return [one and one.word for one in told]


IN_ORDER = (60.0, 90.0, 90.0, 65.0, 90.0, 62.0, 63.0, 67.0, 61.0, 64.0, 90.0)  # as in the paper, failures last


def test_a_column_in_the_papers_order_agrees_everywhere():
    assert set(words(IN_ORDER)) == {"agrees"}


def test_a_column_in_the_contrary_order_agrees_nowhere():
    assert set(words([150 - error for error in IN_ORDER], limit=200.0)) == {"against"}


def test_one_row_out_of_order_is_against_and_the_others_only_partly_with_the_paper():
    told = words((85.0, *IN_ORDER[1:]))  # identity, the paper's best, worse than all that learned
    assert told[0] == "against"
    assert told[1] == "agrees"  # a failure is still worse than it
    assert {told[i] for i in (3, 5, 6, 7, 8, 9)} == {"partly"}


def test_rows_that_noise_explains_are_undecided_and_rows_without_results_are_nothing():
    assert set(words([60.0] * 11)) == {"undecided"}
    lonely = words([60.0] + [None] * 10)
    assert lonely == ["undecided"] + [None] * 10


def test_a_row_told_apart_from_few_agrees_only_partly():
    """Identity is clearly the best, all others are alike: the order among them is not seen."""
    told = words((60.0, *[70.0] * 10))
    assert told[0] == "agrees"
    assert set(told[1:]) == {"partly"}


@pytest.mark.parametrize(
    ("error", "word"), [(6.61, "agrees"), (6.70, "agrees"), (7.61, "against"), (5.61, "against"), (30.0, "against")]
)
def test_where_nothing_was_scaled_values_are_compared(error, word):
    told = find_agreement(TABLE1.cells[0], TABLE1, outcomes([error, *IN_ORDER[1:]], scaled=(), limit=68.0))
    assert told is not None
    assert told.word == word
    assert f"{abs(error - 6.61):.2f} points" in told.why


def test_where_nothing_was_scaled_a_failure_agrees_with_a_failure():
    found = outcomes(IN_ORDER, scaled=(), limit=20.0)
    told = [find_agreement(cell, TABLE1, found) for cell in TABLE1.cells]
    assert [one.word for one in told if one.why == "both fail"] == ["agrees"] * 4
    assert {one.word for one in told if one.why == "ours fails, the paper's does not"} == {"against"}


@pytest.mark.parametrize(("error", "word"), [(6.9, "agrees"), (6.2, "agrees"), (7.8, "undecided")])
def test_a_single_run_agrees_if_the_papers_value_lies_in_its_interval(error, word):
    run = {"result": {"test": {"error": error, "interval": [error - 0.5, error + 0.5]}}}
    row = TABLE1.cells[0].row.name
    one = Outcome(row, "paper", (), 20.0, {"recipe": {"validation": 0}, "runs": [run]})
    told = find_agreement(TABLE1.cells[0], TABLE1, Outcomes({row: one}))
    assert told is not None
    assert told.word == word
    assert ("95 % interval over test images" in told.why) == (word == "agrees")
