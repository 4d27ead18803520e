"""`resnets reproduce detection`: the paper's numbers, the plan, and a row that runs from beginning to end."""

import dataclasses
import json

import pytest
import torch

import resnets
from resnets.cli import main
from resnets.errors import UserError
from resnets.experiments import detection as experiment
from resnets.experiments.options import ReproduceOptions
from resnets.papers import detection as papers
from tests.detection.shapes import QUICK, write_shapes
from tools.tables.pages import write_detection_tables

TABLES = {table.where: table for table in papers.PAPER}


@pytest.fixture(autouse=True)
def _no_timing(monkeypatch):
    monkeypatch.setattr(experiment, "_measure_speed", lambda: 1e10)


def test_the_papers_numbers():
    numbers = {where: [(cell.at_50, cell.coco) for cell in table.cells] for where, table in TABLES.items()}
    assert numbers["v1 Table 7"] == [(73.2, None), (76.4, None), (70.4, None), (73.8, None)]
    assert numbers["v1 Table 8"] == [(41.5, 21.2), (48.4, 27.2)]
    assert numbers["v1 Table 9"] == [(48.4, 27.2), (49.9, 29.9), (51.1, 30.0), (53.8, 32.5), (55.7, 34.9), (59.0, 37.4)]


def test_every_row_is_a_detector_and_a_recipe():
    for tables in papers.BUDGETS.values():
        for row in {cell.row for table in tables for cell in table.cells if cell.row}:
            spec, recipe = experiment.describe_row(row)
            assert spec.backbone.name == row.network
            assert recipe.name == row.recipe
            assert row.data in papers.EXAMPLES


@pytest.mark.parametrize("budget", ["paper", "day"])
def test_the_plan_is_priced_and_nothing_runs_without_pictures(budget, tmp_path, capsys):
    assert main(["reproduce", "detection", "--budget", budget, "--results", str(tmp_path), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not run" in out
    assert "pictures (--voc DIR) and weights" in out
    assert "resnets train faster_rcnn_vgg16 --data voc:VOC" in out
    found = experiment.reproduce_detection(ReproduceOptions(budget=budget, results=str(tmp_path), dry_run=True))
    assert all(row.cost > 1e14 and row.hours > 1 and row.missing for row in found.plan)
    assert not list(tmp_path.iterdir())


def test_wrong_words(capsys):
    assert main(["reproduce", "detection", "--budget", "hour"]) == 2
    assert "detection has the budgets paper, day" in capsys.readouterr().err
    assert main(["reproduce", "detection", "table1"]) == 2
    assert "name it alone" in capsys.readouterr().err


def test_a_row_from_the_training_to_the_table(tmp_path, monkeypatch):
    """A small net on small pictures in the place of ResNet-50 on VOC."""
    word = write_shapes(tmp_path / "VOC")
    net = resnets.create("resnet18", seed=0)
    (tmp_path / "weights").mkdir()
    resnets.save_weights(net, tmp_path / "weights" / "resnet18.safetensors")
    skipped = ("threads", "decoders", "anchor_ratios")
    changes = tuple((key, value) for key, value in QUICK.items() if key not in skipped)
    row = papers.DetectionRow(
        "resnet18", "voc2012", "voc-paper", changes=(*changes, ("length", "2it"), ("milestones", ""))
    )
    cells = [papers.DetectionCell("one", row, test, 50.0, 20.0) for test in ("", "refinement")]
    monkeypatch.setitem(papers.BUDGETS, "day", (papers.DetectionTable("v1 Table 7", "a test", tuple(cells)),))
    monkeypatch.setitem(experiment._WORDS, "voc2012", "voc:{voc}:train:test")
    options = ReproduceOptions(
        budget="day", voc=word.split(":")[1], backbones=str(tmp_path / "weights"), results=str(tmp_path / "results"),
        out=str(tmp_path / "runs"), threads="1",
    )  # fmt: skip
    said: list[str] = []
    found = experiment.reproduce_detection(options, said.append)
    (table,) = found.tables
    assert all(cells[2] != experiment.NOT_RUN for cells in table.cells)
    results = tmp_path / "results" / "detection" / "day"
    files = sorted(path.name for path in results.iterdir())
    assert files == [
        "differences.json", "faster_rcnn_resnet18-voc2012-refinement.json", "faster_rcnn_resnet18-voc2012.json"
    ]  # fmt: skip
    result = json.loads((results / files[2]).read_text())
    assert {"command", "commit", "versions", "machine", "run"} <= set(result)
    assert "row" not in result  # by which a report knows rows of classifiers
    assert set(result["scores"]) == {"voc2007", "voc2012", "coco"}
    maps = [json.loads((results / name).read_text())["scores"]["voc2012"]["map"] for name in files[1:]]
    ((name, ahead),) = json.loads((results / files[0]).read_text())["differences"].items()
    assert name == "faster_rcnn_resnet18-voc2012-refinement - faster_rcnn_resnet18-voc2012"
    assert ahead["difference"] == pytest.approx(maps[0] - maps[1])
    assert table.cells[1][3].startswith(f"{ahead['difference']:+.1f} (")
    assert table.cells[0][3] == ""
    assert " | ".join(table.cells[1]) in write_detection_tables(tmp_path / "results")
    said.clear()
    experiment.reproduce_detection(options, said.append)
    assert not said, "what is finished is not run again"
    damaged = results / files[2]
    damaged.write_text("{}")
    with pytest.raises(UserError, match="detector is missing"):
        experiment.reproduce_detection(dataclasses.replace(options, dry_run=True))


def test_the_speed_is_measured(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(experiment, "_TIMED", (64, 80, 4))
    torch.set_num_threads(1)
    assert experiment._measure_speed() > 1e6
