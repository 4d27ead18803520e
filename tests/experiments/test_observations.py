"""Verdicts from made-up results: each observation can hold, not hold, and stay undecided."""

import pytest

from resnets import UserError, spec_of
from resnets.experiments.observations import FIGURE3, OBSERVATIONS, judge, judge_all, judge_best
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Row
from resnets.papers.tables import order


def made(row, *, errors=(30.0, 31.0), early=(2.0, 2.02), final=(1.0, 1.02), size=None, zeros=None, failed=()):
    """Results of a row as `reproduce` writes them, with a curve of 100 steps."""
    spec = spec_of(row.network, **dict(row.changes))
    runs = []
    for seed in range(len(errors)):
        losses = [early[seed] if step <= 25 else final[seed] for step in range(1, 101)]
        run = {"seed": seed, "steps": 100, "curves": {"loss": [list(range(1, 101)), losses]}}
        run["result"] = {"failed": "the loss is not finite"} if seed in failed else {"test": {"error": errors[seed]}}
        if zeros is not None or size is not None:
            units = sum(spec.blocks)
            run["signal"] = {"size": size or [1.0] * (units + 1), "zeros": [0.5] + [zeros or 0.0] * units}
        runs.append(run)
    network = spec.to_dict()
    result = {"row": row.name, "budget": "hour", "scaled": [], "fails_above": 81.0, "network": network, "runs": runs}
    return Outcome.from_dict({**result, "recipe": {"validation": 0}})


def decide(number, *outcomes):
    return judge(OBSERVATIONS[number - 1], Outcomes({one.row: one for one in outcomes})).verdict


IDENTITY = made(Row("resnet110"))
OUTCOMES = ("holds", "does not hold", "undecided")


def near(value):
    return value, value + 0.02


def test_there_are_seven_and_without_results_all_are_undecided():
    told = judge_all(Outcomes())
    assert [one.number for one in told] == [1, 2, 3, 4, 5, 6, 7]
    assert {one.verdict for one in told} == {"undecided"}
    assert all("there is no result of" in one.why for one in told)


@pytest.mark.parametrize(("slow", "word"), list(zip((2.5, 1.5, 2.01), OUTCOMES, strict=True)))
def test_1_and_3_early_losses(slow, word):
    assert decide(1, made(Row("resnet1001"), early=near(slow)), made(Row("preresnet1001"))) == word
    assert decide(3, made(order(110, "bn_after_add"), early=near(slow)), IDENTITY) == word


def test_1_one_seed_is_judged_by_the_spread_of_other_rows():
    slow, fast = made(Row("resnet1001"), errors=(90.0,)), made(Row("preresnet1001"), errors=(70.0,), early=(1.5,))
    assert decide(1, slow, fast) == "undecided"
    assert decide(1, slow, fast, made(Row("resnet20")), made(Row("resnet32"))) == "holds"


@pytest.mark.parametrize(("last", "word"), list(zip((1.5, 0.5, 1.0), OUTCOMES, strict=True)))
def test_2_all_shortcuts_must_train_worse(last, word):
    others = [made(row, final=near(1.5)) for row in FIGURE3[:-1]]
    assert decide(2, IDENTITY, *others, made(FIGURE3[-1], final=near(last))) == word


def test_2_a_shortcut_that_diverges_trains_worse():
    others = [made(row, final=near(1.5)) for row in FIGURE3[:-1]]
    assert decide(2, IDENTITY, *others, made(FIGURE3[-1], failed=(0, 1))) == "holds"


def test_4_the_signal_grows_in_every_unit_or_not():
    growing = [1.0 + i for i in range(55)]
    falling = growing[:30] + growing[29:54]  # unit 29 keeps it as it is
    with_relu = order(110, "relu_before_add")
    usual = made(Row("resnet110"), size=[1.0] * 55)
    assert decide(4, usual, made(with_relu, size=growing)) == "holds"
    assert decide(4, usual, made(with_relu, size=falling)) == "does not hold"
    assert decide(4, made(Row("resnet110"), size=growing), made(with_relu, size=growing)) == "undecided"
    assert decide(4, IDENTITY, made(with_relu)) == "undecided"


def test_4_units_that_change_the_dimension_do_not_count():
    size = [1.0 + i for i in range(55)]
    size = [s - 100 * (i > 18) - 100 * (i > 36) for i, s in enumerate(size)]  # falls in units 18 and 36
    assert decide(4, made(Row("resnet110"), size=[1.0] * 55), made(order(110, "relu_before_add"), size=size)) == "holds"


@pytest.mark.parametrize(("deep", "word"), list(zip((0.6, 0.1, None), OUTCOMES, strict=True)))
def test_5_truncation(deep, word):
    spreading = [made(Row(name), zeros=0.3) for name in ("resnet20", "resnet32", "resnet44")]
    for one in spreading:
        one.runs[1]["signal"]["zeros"] = [0.5, 0.31]
    assert decide(5, made(Row("resnet1001"), zeros=deep), made(Row("resnet164"), zeros=0.3), *spreading) == word


def test_5_the_zeros_of_the_stem_and_of_units_without_a_last_relu_do_not_count():
    assert made(Row("resnet20"), zeros=0.3).values("truncation") == pytest.approx((0.3, 0.3))
    assert made(Row("preresnet20"), zeros=0.3).values("truncation") == ()


@pytest.mark.parametrize(("loss", "word"), list(zip((1.2, 0.8, 1.0), OUTCOMES, strict=True)))
def test_6_higher_loss_and_lower_error(loss, word):
    original = made(Row("resnet164"), errors=(30.0, 30.5))
    assert decide(6, original, made(Row("preresnet164"), errors=(20.0, 20.5), final=near(loss))) == word
    worse = made(Row("preresnet164"), errors=(40.0, 40.5), final=near(1.2))
    assert decide(6, original, worse) == "does not hold"


@pytest.mark.parametrize(
    ("plain", "residual", "word"),
    [(2.0, 0.9, "holds"), (2.0, 1.005, "holds"), (2.0, 1.5, "does not hold"), (0.9, 0.9, "does not hold"),
     (1.005, 1.0, "undecided")],
)  # fmt: skip
def test_7_plain_nets_degrade_and_residual_nets_do_not(plain, residual, word):
    shallow = made(Row("plain20")), made(Row("resnet20"))
    assert (
        decide(7, *shallow, made(Row("plain56"), final=near(plain)), made(Row("resnet56"), final=near(residual)))
        == word
    )
    assert decide(7, *shallow) == "undecided"


def test_a_verdict_says_why():
    told = judge(OBSERVATIONS[2], Outcomes({IDENTITY.row: IDENTITY, "resnet110-bn_after_add-cifar10": made(
        order(110, "bn_after_add"), early=near(2.5))}))  # fmt: skip
    assert told.why.startswith("yes: resnet110-bn_after_add-cifar10 2.51, resnet110-cifar10 2.01 (training loss, ")
    assert "seeds' spread 0.014" in told.why


def test_failure_is_the_median_above_the_limit_and_divergence_counts():
    assert not made(Row("resnet20")).fails
    assert made(Row("resnet20"), errors=(85.0, 88.0)).fails
    one = made(Row("resnet20"), failed=(0, 1))
    assert (one.fails, one.diverged) == (True, 2)


def test_the_spread_is_pooled_over_rows_that_learned():
    rows = {
        "a": made(Row("resnet20"), errors=(30.0, 34.0)),
        "b": made(Row("resnet32"), errors=(10.0, 12.0)),
        "c": made(Row("resnet44"), errors=(90.0, 90.0)),  # at chance
        "d": made(Row("resnet56"), errors=(10.0,)),
    }
    found = Outcomes(rows).spread("error")
    assert found.freedom == 2
    assert found.std == pytest.approx(((8 + 2) / 2) ** 0.5)
    assert found.quantile == pytest.approx(4.3027, abs=1e-3)
    assert Outcomes({"d": rows["d"]}).spread("error") is None


def test_a_file_that_is_no_result_is_told(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(UserError, match=r"a\.json: row is missing\. Move the file away"):
        Outcomes.read(tmp_path)


def test_the_best_budget_with_all_rows_of_an_observation_judges_it():
    late, early = made(order(110, "bn_after_add"), early=near(1.5)), made(order(110, "bn_after_add"), early=near(2.5))
    hour = Outcomes({IDENTITY.row: IDENTITY, early.row: early})
    third = judge_best({"paper": Outcomes(), "day": Outcomes({IDENTITY.row: IDENTITY}), "hour": hour})[2]
    assert (third.verdict, third.budget) == ("holds", "hour")
    third = judge_best({"day": Outcomes({IDENTITY.row: IDENTITY, late.row: late}), "hour": hour})[2]
    assert (third.verdict, third.budget) == ("does not hold", "day")
    assert third.why.endswith("; budget hour: holds")
    missing = judge_best({"day": Outcomes()})[2]
    assert (missing.verdict, missing.budget) == ("undecided", "")
    assert missing.why == "no budget has results of all of resnet110-cifar10, resnet110-bn_after_add-cifar10"
