"""What a budget makes of a row, and how rows are chosen and split."""

import pytest

from resnets import UserError
from resnets.chain import Chain
from resnets.experiments.budgets import BUDGETS, Budget, Scale
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.plan import choose_rows, find_experiments, make_job, make_jobs
from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS
from resnets.recipe import RECIPES
from resnets.training.schedule import Schedule

ALL = choose_rows(find_experiments(["all"]))


def test_the_paper_budget_is_the_papers_protocol():
    jobs, _ = make_jobs(ALL, BUDGETS["paper"])
    for one in jobs:
        assert one.scaled == ()
        assert one.seeds == (0, 1, 2, 3, 4)
        if not one.row.validation:
            assert one.recipe == RECIPES[one.row.recipe]
    by_name = {one.row.name: one for one in jobs}
    assert by_name["resnet110-cifar10"].limit == 20
    assert by_name["resnet164-cifar100"].spec.num_classes == 100
    assert by_name["resnet164-cifar100"].limit == pytest.approx(0.9 * 99)


def test_rows_on_imagenet_wait_where_there_is_none():
    jobs, waiting = make_jobs(ALL, BUDGETS["hour"])
    assert all("-imagenet" in name for name in waiting)
    assert len(jobs) + len(waiting) == len(ALL)
    assert "imagenet" not in {one.row.data for one in jobs}


@pytest.mark.parametrize("name", ["hour", "day"])
def test_a_schedule_keeps_its_shape(name):
    """After the warm-up the rate at each share of the training is the paper's, in proportion to the batch."""
    one = make_job(Row("resnet110"), BUDGETS[name])
    ours, theirs = Schedule(one.recipe, 50_000), Schedule(RECIPES["cifar-paper"], 50_000)
    assert ours.total == one.steps < theirs.total
    for share in (0.2, 0.49, 0.51, 0.74, 0.76, 0.99):
        rate = theirs.lr(int(share * theirs.total)) * one.recipe.batch / 128
        assert ours.lr(int(share * ours.total)) == pytest.approx(rate)


def test_the_hour_keeps_depth_and_says_what_it_scales():
    one = make_job(Row("resnet110"), BUDGETS["hour"])
    assert one.spec.depth == 110
    assert one.scaled == (
        "images 16x16", "widths 8,16,32", "1000it for 64000it", "batch 32", "lr 0.025", "pad 2", "warmup 100it",
        "milestones 500it,750it",
    )  # fmt: skip
    deep = make_job(Row("preresnet1001"), BUDGETS["hour"])
    assert (deep.steps, deep.recipe.batch, deep.seeds, deep.spec.depth) == (300, 32, (0,), 1001)
    schedule = Schedule(deep.recipe, 50_000)
    assert [schedule.lr(step) for step in (0, 29, 30, 299)] == [0.01, 0.01, 0.025, 0.025]


def test_a_batch_of_its_own_is_scaled_in_proportion():
    one = make_job(Row("preresnet1001", recipe="cifar-paper-b64"), BUDGETS["hour"])
    assert (one.recipe.batch, one.recipe.micro_batch) == (16, 8)


def test_smoke_is_small_in_every_way():
    for one in make_jobs(ALL, BUDGETS["smoke"])[0]:
        assert one.steps <= 10
        assert isinstance(one.spec, Chain) or sum(one.spec.blocks) <= 3
        assert one.source.name == "synthetic:256"
        assert one.spec.num_classes == 10
        assert one.recipe.validation == (25 if one.row.validation else 0)


def test_seeds_can_be_chosen():
    ((one,), _) = make_jobs([Row("resnet20")], BUDGETS["hour"], seeds=3)
    assert one.seeds == (0, 1, 2)
    with pytest.raises(UserError, match="seeds must be between 1 and 10000, not 0"):
        ReproduceOptions(seeds=0)


def test_the_first_scale_that_reaches_the_depth_is_taken():
    budget = Budget("b", "", 1, (Scale(20, 5), Scale(56, 6), Scale(iterations=7)), Scale())
    assert [make_job(Row(f"resnet{n}"), budget).steps for n in (20, 32, 110)] == [5, 6, 7]


@pytest.mark.parametrize("parts", [1, 2, 7, 100])
def test_shards_are_a_partition(parts):
    shards = [choose_rows(find_experiments(["all"]), shard=f"{i}/{parts}") for i in range(1, parts + 1)]
    assert sorted(row.name for shard in shards for row in shard) == sorted(row.name for row in ALL)


def test_tables_that_share_a_row_plan_it_once():
    rows = choose_rows(find_experiments(["table1", "table2", "table1", "figure3"]))
    assert len(rows) == len(set(rows)) == 11 + 9
    assert [e.name for e in find_experiments(["table2", "all"])] == list(EXPERIMENTS)


def test_rows_by_pattern():
    assert [row.name for row in choose_rows(find_experiments(["table1"]), "*scale*")] == [
        "resnet110-scale_0.5_1-cifar10", "resnet110-scale_0.5_0.5-cifar10",
    ]  # fmt: skip
    with pytest.raises(UserError, match="no row matches 'resnet18'; there are resnet110-cifar10"):
        choose_rows(find_experiments(["table1"]), "resnet18")


@pytest.mark.parametrize("shard", ["0/3", "4/3", "a/b", "1", "1/0", "-1/3", "1/2/3"])
def test_bad_shards_are_told(shard):
    with pytest.raises(UserError, match="a shard is written as 3/16"):
        choose_rows(find_experiments(["table1"]), shard=shard)


def test_bad_names_are_told():
    with pytest.raises(UserError, match="unknown experiment 'table11': did you mean table1"):
        find_experiments(["table11"])
    with pytest.raises(UserError, match="say what to reproduce"):
        find_experiments([])
    with pytest.raises(UserError, match="unknown budget 'week'"):
        ReproduceOptions(budget="week")
