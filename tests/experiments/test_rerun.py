"""Published runs, trained again from their file."""

import dataclasses
import json

import pytest

import resnets
from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.plan import make_job
from resnets.experiments.running import Runner
from resnets.papers.rows import Row
from resnets.papers.tables import other


@pytest.fixture
def published(tmp_path):
    """A file of results of two short runs."""
    runs = [
        resnets.train(
            "preresnet20", data="synthetic:64", blocks=(1, 1, 1), recipe="cifar-paper", length="3it", batch=8,
            seed=seed, out=str(tmp_path / "runs"), quiet=True,
        )
        for seed in (0, 3)
    ]  # fmt: skip
    from resnets.experiments.results import collect_runs, write_results

    return write_results(tmp_path / "result.json", collect_runs(runs))


def test_a_row_comes_out_the_same(published, tmp_path):
    before = published.read_bytes()
    found = resnets.rerun(published, out=str(tmp_path / "again"), quiet=True)
    assert [one.seed for one in found] == [0, 3]
    assert all(one.agrees and one.split == "test" and one.path.parent.name == "again" for one in found)
    assert published.read_bytes() == before
    only = resnets.rerun(published, seeds=(3,), out=str(tmp_path / "again"), quiet=True)
    assert [one.seed for one in only] == [3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["data"].update(digest="0" * 64), "other images"),
        (lambda r: r["data"].update(name="pictures"), "pictures"),
        (lambda r: r.pop("recipe"), "recipe"),
        (lambda r: r.update(runs=[]), "runs"),
        (lambda r: r.update(teacher="0" * 64), "learned from a teacher that the file does not hold"),
        (lambda r: r.update(weights="0" * 64), "began with weights that the file does not hold"),
    ],
)
def test_files_that_cannot_be_run_again(published, change, words, tmp_path):
    result = json.loads(published.read_text())
    change(result)
    published.write_text(json.dumps(result))
    with pytest.raises(UserError, match=words):
        resnets.rerun(published, out=str(tmp_path / "again"), quiet=True)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "row", [other("allcnn", "allcnn-paper"), Row("resnet1001")], ids=["a system of others", "fewer test images"]
)
def test_any_row_of_reproduce_comes_out_the_same(row, tmp_path):
    few = dataclasses.replace(BUDGETS["smoke"].scales[0], tested=16)
    job = make_job(row, dataclasses.replace(BUDGETS["smoke"], scales=(few,), data="synthetic:64"), 1)
    options = ReproduceOptions(budget="smoke", out=str(tmp_path / "runs"), results=str(tmp_path / "results"))
    file = Runner(options, quiet=True).run(job, 0)
    assert json.loads(file.read_text())["data"]["name"] == "synthetic:64@16/16"
    (found,) = resnets.rerun(file, out=str(tmp_path / "again"), quiet=True)
    assert found.agrees
    assert found.path != tmp_path / "runs" / found.path.name


def test_a_seed_that_is_not_there(published, tmp_path):
    with pytest.raises(UserError, match="seed"):
        resnets.rerun(published, seeds=(1,), out=str(tmp_path / "again"))


def test_sizes_are_told_and_enter_the_estimate():
    job = make_job(Row("resnet110"), BUDGETS["day"])
    assert "images 16x16, 24x24 from 60% on, 32x32 from 85% on" in job.scaled
    assert job.pixels == pytest.approx(0.6 / 4 + 0.25 * (24 / 32) ** 2 + 0.15)
    assert make_job(Row("resnet110"), BUDGETS["paper"]).pixels == 1
