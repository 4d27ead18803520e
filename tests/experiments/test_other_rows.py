"""Rows of other systems: what a budget makes of them, and that they run."""

import json

import pytest

from resnets.chain import Chain
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.plan import _describe_network as describe_network
from resnets.experiments.plan import _scale_network as scale_network
from resnets.experiments.plan import make_job, make_jobs
from resnets.experiments.protocols import PROTOCOLS, scale_views
from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS, fitnet
from resnets.runs import Run
from resnets.training.estimate import normalize_spec
from resnets.training.schedule import Schedule
from resnets.zoo import spec_of

OTHERS = [row for row in EXPERIMENTS["table4"].rows if row.recipe not in ("cifar-paper", "cifar-paper-b64")]


def test_the_hour_keeps_the_layers_and_scales_the_rest_in_proportion():
    one = make_job(Row("dsn", recipe="dsn-paper"), BUDGETS["hour"])
    assert one.spec.input_size == 16
    assert one.spec.depth == 9
    assert one.scaled == (
        "images 16x16", "1/2 of the filters", "1000it for 200000it", "batch 25", "lr 0.00625", "pad 2",
        "milestones 750it:0.05,850it:0.08", "init gaussian:0.07071",
    )  # fmt: skip
    recipe = one.recipe
    assert (recipe.aux_length, recipe.warmup) == ("250it", "0it")  # the warm-up of residual rows is not theirs
    schedule = Schedule(recipe, 50_000)
    assert [schedule.aux_weight(step) for step in (0, 249, 250)] == [1.0, 1.0, 0.0]
    assert schedule.lr(999) == pytest.approx(0.00625 * 0.05 * 0.08)


def test_spans_inside_of_fields_are_scaled():
    maxout = make_job(Row("maxout", recipe="maxout-paper"), BUDGETS["hour"]).recipe
    assert maxout.momentum_ramp == "0.65@527it"  # 250 of 474 epochs
    assert make_job(fitnet("cifar10"), BUDGETS["hour"]).recipe.distill == "4-1@1736it"  # 500 of 288 epochs


def test_the_paper_budget_is_their_authors_protocol():
    for one in make_jobs(OTHERS, BUDGETS["paper"])[0]:
        assert not one.scaled
        assert one.recipe.name == one.row.recipe
        assert one.spec.input_size == 32


def test_a_student_needs_its_teacher_and_its_hints():
    one = make_job(fitnet("cifar100"), BUDGETS["smoke"])
    assert [job.row.recipe for job in one.before] == ["maxout-paper", "fitnet-hints"]
    assert one.begins.teacher == one.teacher


def test_heads_that_small_images_leave_no_room_for_are_left_out():
    paper = spec_of("googlenet")
    small = scale_network(paper, BUDGETS["hour"].imagenet, 64)
    assert isinstance(small, Chain)
    assert (paper.heads, small.heads) == (2, 0)
    assert [*describe_network(paper, small)] == ["1/4 of the filters", "no auxiliary heads"]


def test_tests_of_inception_are_in_proportion_to_its_own_side():
    assert scale_views("299 crop", 299, 299) == PROTOCOLS["299 crop"]
    assert scale_views("299 crop", 85, 299).side == 85


def test_systems_that_cost_the_same_are_timed_once():
    one, two = (
        make_job(Row("nin", data=data, recipe="nin-paper"), BUDGETS["hour"]) for data in ("cifar10", "cifar100")
    )
    assert normalize_spec(one.spec) == normalize_spec(two.spec)


def test_rows_run_and_a_student_learns_in_two_stages(tmp_path, run_smoke):
    run_smoke("table4", "--seeds", "1", "--rows", "nin-cifar10-nin-paper")
    found = json.loads((tmp_path / "results/smoke/nin-cifar10-nin-paper.json").read_text())
    assert found["network"]["kind"] == "chain"
    assert "signal" not in found["runs"][0]
    run_smoke("table4", "--seeds", "1", "--rows", "fitnet4-cifar10-fitnet-paper")
    found = json.loads((tmp_path / "results/smoke/fitnet4-cifar10-fitnet-paper.json").read_text())
    assert found["teacher"]
    assert found["weights"]
    runs = {Run(path.parent).identity.recipe.name: Run(path.parent) for path in tmp_path.glob("runs/*/config.json")}
    hints = runs["fitnet-hints-smoke"]
    assert hints.identity.task == "hints"
    assert set(hints.result) == {"steps", "task", "train"}
    assert {"maxout-paper-smoke", "fitnet-paper-smoke", "nin-paper-smoke"} < set(runs)
