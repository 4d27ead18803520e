"""What budgets cost, and what their results show: `resnets reproduce --list`."""

import dataclasses

import pytest

from resnets.cli import main
from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.plan import make_job
from resnets.experiments.price import price_job
from resnets.experiments.status import list_budgets
from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS, fitnet

RESNET20 = 40_551_040  # multiply-adds, by hand: the first convolution, 6 + 6 + 6 of 3x3 in three stages, 64x10
STEPS, BATCH, TESTED = 64_000, 128, 10_000


def test_a_price_is_three_forward_passes_a_training_image_and_one_a_test_image():
    tests = 1 + STEPS * BATCH // 50_000  # after every epoch and at the end
    paper = price_job(make_job(Row("resnet20"), BUDGETS["paper"]))
    assert paper.multiply_adds == pytest.approx(RESNET20 * (3 * STEPS * BATCH + tests * TESTED), rel=1e-12)
    day = price_job(make_job(Row("resnet20"), BUDGETS["day"]))
    pixels = 0.6 * (16 / 32) ** 2 + 0.25 * (24 / 32) ** 2 + 0.15
    tests = 1 + STEPS // 10 * BATCH // 50_000
    assert day.multiply_adds == pytest.approx(RESNET20 * (3 * STEPS / 10 * BATCH * pixels + tests * TESTED), rel=1e-12)
    assert paper.hours == pytest.approx(paper.seconds / 7200)


def test_a_price_includes_the_teacher_and_the_hints():
    job = make_job(fitnet("cifar10"), BUDGETS["hour"])
    alone = dataclasses.replace(job, teacher=None, begins=None)
    before = sum(price_job(one).seconds for one in job.before)  # the teacher once, though the hints need it too
    assert [one.before for one in job.before] == [(), ()]
    assert [one.row.network for one in job.before] == ["maxout", "fitnet4"]
    assert price_job(job).seconds == pytest.approx(price_job(alone).seconds + before)


def test_the_list_has_every_experiment_and_for_each_budget_its_price_and_results(tmp_path, run_smoke, capsys):
    run_smoke("table1", "--rows", "resnet110-cifar10", "--seeds", "1")
    results = tmp_path / "results"
    budgets = {one.budget.name: one for one in list_budgets(results)}
    assert list(budgets) == list(BUDGETS)
    assert {name: one.done for name, one in budgets.items()} == {"paper": 0, "day": 0, "hour": 0, "smoke": 1}
    smoke = budgets["smoke"]
    one_run = price_job(make_job(Row("resnet110"), BUDGETS["smoke"]))
    assert smoke.price.multiply_adds - smoke.left.multiply_adds == pytest.approx(one_run.multiply_adds)  # of two seeds
    assert smoke.count("undecided") == 7
    assert budgets["paper"].price.hours > 50 * budgets["day"].price.hours > 50 * 20 * budgets["hour"].price.hours

    broken = results / "smoke" / "resnet56-cifar10.json"
    broken.write_text("{}")
    with pytest.raises(UserError, match="row is missing"):
        list_budgets(results)
    assert main(["reproduce", "--list", "--results", str(results)]) == 1
    said = capsys.readouterr()
    assert f"left out: {broken}" in said.err
    assert all(name in said.out for name in [*EXPERIMENTS, *BUDGETS, "detection"])
    line = next(line for line in said.out.splitlines() if line.startswith("smoke") and " of " in line)
    assert line.split()[1:4] == ["1", "of", str(smoke.rows)]
