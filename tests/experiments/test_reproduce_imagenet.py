"""Rows on ImageNet: what a budget makes of them, and the command on trees of a few pictures."""

import json
import shutil

import pytest

from pictures import REAL, photographs, tree
from resnets.chain import Chain
from resnets.cli import main
from resnets.data.folder import open_folder
from resnets.errors import UserError
from resnets.experiments import plan as planning
from resnets.experiments import protocols
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.outcomes import Outcomes
from resnets.experiments.plan import choose_rows, find_experiments, make_job, make_jobs, open_imagenet
from resnets.experiments.running import Runner
from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS, list_protocols
from resnets.recipe import RECIPES

ROW = Row("resnet101", (("stride_on", "1x1"),), "imagenet", "imagenet-paper")  # in four tables, by three protocols
NAME = "resnet101-1x1-imagenet-imagenet-paper"
CLASSES = ("3", "14", "159", "265", "358", "979")


@pytest.fixture
def imagenet(tmp_path):
    """Six of the thousand classes."""
    tree(tmp_path / "imagenet" / "train", CLASSES, each=3)
    tree(tmp_path / "imagenet" / "val", CLASSES, each=2)
    return tmp_path / "imagenet"


@pytest.fixture
def reproduce(tmp_path, capsys):
    """`resnets reproduce ... --budget smoke`; returns what it printed."""

    def run(*words, code=0):
        folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        assert main(["reproduce", *map(str, words), "--budget", "smoke", *folders]) == code
        return capsys.readouterr()

    return run


# --- the plan ---------------------------------------------------------------------------------


def test_the_paper_budget_is_the_papers_protocol_on_the_whole_of_imagenet(imagenet, monkeypatch):
    folder = open_imagenet(str(imagenet))
    rows = [row for row in choose_rows(find_experiments(["all"])) if row.data == "imagenet"]
    told = {one.scaled for one in make_jobs(rows, BUDGETS["paper"], imagenet=folder)[0]}
    assert told == {("18 of 1,281,167 training images", "12 of 50,000 test images")}
    monkeypatch.setattr(planning, "IMAGENET_IMAGES", 18)
    monkeypatch.setattr(planning, "IMAGENET_TESTED", 12)
    for one in make_jobs(rows, BUDGETS["paper"], imagenet=folder)[0]:
        own = 299 if one.row.network.startswith("inception") else 224
        assert (one.scaled, one.seeds, one.side, one.spec.num_classes) == ((), (0,), own, 1000)
        assert one.recipe == RECIPES[one.row.recipe]
        if not isinstance(one.spec, Chain):
            assert one.steps == -(-90 * 18 // 256)


def test_a_smaller_budget_says_what_it_takes_of_imagenet(imagenet):
    whole = open_imagenet(str(imagenet))
    hour = BUDGETS["hour"]
    one = make_job(ROW, hour, imagenet=whole)
    assert one.scaled == (
        "6 of 1000 classes", "18 of 1,281,167 training images", "12 of 50,000 test images",
        "crops of 64 for 224 (others in proportion)", "widths 16,32,64,128", "800it for 90ep", "batch 32", "lr 0.0125",
        "milestones 267it,533it",
    )  # fmt: skip
    assert (one.spec.depth, one.spec.num_classes, one.recipe.side, one.recipe.pad) == (101, 6, 64, 4)
    assert make_job(ROW, hour, imagenet=whole).source == one.source  # so that rows share their images


def test_a_row_is_trained_once_for_all_its_protocols():
    assert list_protocols(ROW) == ("224 crop", "10 crops", "5 scales")
    cells = [cell for experiment in EXPERIMENTS.values() for cell in experiment.cells if cell.row]
    assert all(cell.test in protocols.PROTOCOLS for cell in cells if cell.row.data == "imagenet")
    assert all(not cell.test for cell in cells if cell.row.data != "imagenet")


@pytest.mark.parametrize(
    ("test", "told", "cost"),
    [
        ("224 crop", "crop 64 of 73", 1),
        ("320 crop", "crop 91 of 91", (320 / 224) ** 2),
        ("10 crops", "ten crops of 64 of 73", 10),
        ("5 scales", "whole pictures at 64, 73, 110, 137, 183", 4 / 3 * (1 + 1.306 + 2.939 + 4.592 + 8.163)),
    ],
)
def test_protocols_are_in_proportion_to_the_crops_of_training(test, told, cost):
    assert protocols.scale_views(test, 224) == protocols.PROTOCOLS[test]
    assert str(protocols.scale_views(test, 64)) == told
    assert protocols.count_crops(test) == pytest.approx(cost, rel=1e-3)


def test_mistakes_are_one_sentence(imagenet, reproduce):
    assert "there is no folder" in reproduce("table5", "--imagenet", imagenet / "nowhere", code=2).err
    shutil.rmtree(imagenet / "val")
    said = reproduce("table5", "--imagenet", imagenet, code=2).err
    assert "must have the folders train and val, as `resnets data prepare imagenet` makes them." in said
    assert len(said.splitlines()) == 1


# --- the command ------------------------------------------------------------------------------


def test_a_row_end_to_end(tmp_path, imagenet, reproduce, capsys):
    """Trained once, tested by every protocol, each equal to what `resnets eval` finds; then skipped; then shown."""
    words = ["bn-after-imagenet", "depth", "--rows", NAME, "--imagenet", imagenet, "--seeds", "1"]
    said = reproduce(*words)
    assert "1 rows to run" in said.out
    assert said.out.count("took 0:") == 1
    (one,) = Outcomes.read(tmp_path / "results" / "smoke").values()
    assert one.tests == ("224 crop", "10 crops", "5 scales")
    (entry,) = one.runs
    assert one.result["data"]["name"] == "imagenet"
    assert len(entry["signal"]["size"]) == 5
    (run,) = (tmp_path / "runs").iterdir()
    ways = (["--crop", "64@73"], ["--crop", "64@73", "--ten-crop"], ["--multi-scale", "64,73,110,137,183"])
    for test, way in zip(one.tests, ways, strict=True):
        assert main(["eval", str(run), "--data", str(imagenet), *way, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {key: found[key] for key in ("images", "wrong", "error", "interval", "top5")} == {
            key: entry["tests"][test][key] for key in ("images", "wrong", "error", "interval", "top5")
        }
        assert found["loss"] == pytest.approx(entry["tests"][test]["loss"])
        (top1,), (top5,) = one.by(test).values("error"), one.by(test).values("top5")
        assert one.result["summary"][test]["top5"]["median"] == top5 == found["top5"]["error"]
        assert f"{top1:.2f}/{top5:.2f}" in said.out
    assert one.values("error") == one.by("320 crop").values("error") == ()  # it was not tested so

    assert main(["eval", str(run)]) == 2
    assert "ImageNet is a folder: write imagenet:DIR" in capsys.readouterr().err

    moved = imagenet.rename(tmp_path / "elsewhere")  # the same pictures
    words[words.index(imagenet)] = moved
    assert "0 rows to run" in reproduce(*words).out
    tree(moved / "val", CLASSES, each=2, size=(41, 30))  # others
    assert "1 rows to run" in reproduce(*words, "--dry-run").out

    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "results"), "-o", str(page)]) == 0
    top1, top5 = (one.by("10 crops").values(metric)[0] for metric in ("error", "top5"))
    assert f"{top1:.2f}/{top5:.2f}" in page.read_text()
    assert f"10 crops: {top1:.2f} % test error of 12 images" in page.read_text()
    assert "resnets reproduce table5 --imagenet DIR" in page.read_text()


def test_a_killed_row_goes_on_from_its_checkpoint(tmp_path, imagenet, interrupted):
    one = make_job(ROW, BUDGETS["smoke"], 1, open_imagenet(str(imagenet)))
    options = ReproduceOptions(out=tmp_path / "runs", results=tmp_path)
    runner = Runner(options, quiet=True, checkpoint_every=0)
    with pytest.raises(KeyboardInterrupt):
        runner.run(one, 0)
    runner.run(one, 0)
    assert interrupted == [0, 1, 2, 3, 4, 4, 5, 6, 7]


def test_real_pictures(tmp_path, reproduce):
    photographs(1)  # or skip
    for split in ("train", "val"):
        (tmp_path / "imagenet" / split).mkdir(parents=True)
        for folder in sorted(REAL.iterdir())[:24]:
            (tmp_path / "imagenet" / split / folder.name).symlink_to(folder)
    said = reproduce("table5", "--rows", "preresnet152*", "--seeds", "1", "--imagenet", tmp_path / "imagenet").out
    assert "ResNet-152, pre-activation unit, 320 crop" in said
    (one,) = Outcomes.read(tmp_path / "results" / "smoke").values()
    assert one.runs[0]["tests"]["320 crop"]["images"] == 24


# --- some classes -----------------------------------------------------------------------------


def test_some_classes_are_taken_at_even_distances_and_numbered_anew(imagenet):
    whole = open_folder(imagenet, imagenet=True)
    some = whole.some_classes(3)
    assert some.classes == ("3", "159", "358")
    assert some.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert some.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    paths = [some.train.path(i) for i in range(len(some.train))]
    assert paths == [whole.train.path(i) for i in (0, 1, 2, 6, 7, 8, 12, 13, 14)]
    assert len({whole.digest, some.digest, whole.some_classes(2).digest}) == 3
    assert whole.some_classes(100).classes == CLASSES
    shutil.rmtree(imagenet / "val" / "3")
    with pytest.raises(UserError, match="has no image of the 1 classes that are used"):
        open_folder(imagenet, imagenet=True).some_classes(1)
