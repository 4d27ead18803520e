"""Curves, listings, results and tables from run folders written by hand."""

import json
from pathlib import Path

import pytest

from resnets import UserError, spec_of
from resnets.cli.commands.runs import plot_command, results_command, runs_command
from resnets.experiments import collect as results
from resnets.recipe import recipe_of
from resnets.report import curves, listing
from resnets.runs import Run, RunKey, Summary, provenance
from tools.tables import pages as tables

ROOT = Path(__file__).parents[2]


def make_run(
    folder: Path, seed: int = 0, error: float | None = 12.0, model: str = "preresnet20", lines: int = 300
) -> Run:
    identity = RunKey(spec_of(model), "cifar10", "d1ge57", recipe_of("cifar-quick"), seed)
    run = Run(folder / identity.slug)
    run.path.mkdir(parents=True)
    run.config_path.write_text(json.dumps({"run": identity.to_dict(), "steps": 10 * lines, **provenance()}))
    with run.open_metrics() as file:
        for i in range(1, lines + 1):
            line = {"kind": "train", "step": 10 * i, "loss": 2 / i, "error": 9.0, "lr": 0.1, "images_per_second": 128.0}
            file.write(json.dumps({**line, "epoch": i / 10, "memory": 1}) + "\n")
        file.write(json.dumps({"kind": "epoch", "step": 10 * lines, "epoch": 1, "loss": 0.1, "error": 9.0}) + "\n")
        if error is not None:
            file.write(json.dumps({"kind": "test", "step": 10 * lines, "epoch": 1, "loss": 0.1, "error": error}) + "\n")
    if error is not None:
        run.result_path.write_text(json.dumps({"steps": 10 * lines, "test": {"error": error, "interval": [1, 2]}}))
    return run


def test_several_runs_in_one_picture_the_same_bytes_each_time(tmp_path):
    a, b = make_run(tmp_path), make_run(tmp_path, seed=1, error=11.5)
    first = curves.draw([a, b], tmp_path / "one.svg").read_bytes()
    assert curves.draw([a, b], tmp_path / "two.svg").read_bytes() == first
    text = first.decode()
    assert "preresnet20, seed 1: test error 11.50 %" in text
    assert "training loss (dashed)" in text
    assert curves.draw([a], tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_labels_are_as_short_as_tells_runs_apart(tmp_path):
    a, b = make_run(tmp_path), make_run(tmp_path, model="resnet20")
    assert curves.labels([a, b]) == ["preresnet20", "resnet20"]
    assert curves.labels([a, a]) == [a.path.name] * 2


@pytest.mark.parametrize(("name", "message"), [("a.txt", "end its name in .svg, .png or .pdf")])
def test_a_picture_of_no_known_kind_is_refused(tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        curves.draw([make_run(tmp_path)], tmp_path / name)


def test_a_run_without_metrics_cannot_be_drawn(tmp_path):
    run = make_run(tmp_path, lines=1)
    run.metrics_path.write_text("")
    with pytest.raises(UserError, match="has no metrics yet"):
        curves.draw([run], tmp_path / "a.svg")


def test_a_listing_tells_state_and_time_left(tmp_path, capsys):
    make_run(tmp_path)
    stopped = make_run(tmp_path, seed=1, error=None)
    config = stopped.config
    stopped.config_path.write_text(json.dumps({**config, "steps": 6000}))
    rows = {p.parent.name: listing.row(Run(p.parent)) for p in tmp_path.glob("*/config.json")}
    assert rows[stopped.path.name] | {"run": ""} == {
        "run": "", "state": "stopped", "step": 3000, "steps": 6000, "loss": 2 / 300,
        "validation": None, "test": None, "seconds_left": 3000,
    }  # fmt: skip
    with stopped.lock():
        assert listing.row(stopped)["state"] == "training"
    runs_command(str(tmp_path), as_json=False)
    shown = capsys.readouterr().out
    assert "50:00" in shown
    assert "12.00" in shown
    runs_command(str(tmp_path), as_json=True)
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_folders_without_runs_are_told(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        runs_command(str(tmp_path / "no"), as_json=False)
    with pytest.raises(UserError, match="there is no run in"):
        runs_command(str(tmp_path), as_json=False)
    with pytest.raises(UserError, match="there is no run in"):
        plot_command([str(tmp_path)], "a.svg")


def test_results_hold_every_seed_with_its_provenance(tmp_path, capsys):
    runs = [make_run(tmp_path / "runs", seed, error) for seed, error in ((2, 12.0), (0, 11.0), (1, 13.5))]
    out = tmp_path / "results" / "cifar" / "a.json"
    results_command([str(run.path) for run in runs], str(out))
    found = json.loads(out.read_text())
    assert [run["seed"] for run in found["runs"]] == [0, 1, 2]
    assert found["summary"]["test"]["median"] == 12.0
    assert found["network"] == spec_of("preresnet20").to_dict()
    for run in found["runs"]:
        assert {"command", "commit", "versions", "machine", "began", "result"} <= set(run)
        steps, losses = run["curves"]["loss"]
        assert len(steps) == len(losses) <= results.POINTS
        assert (steps[0], steps[-1]) == (10, 3000)
    table = tables.filled("<!-- results: cifar -->\nold\n<!-- end -->\n", tmp_path / "results")
    assert "| preresnet20 | cifar10 | `cifar-quick` | [median 12.00 % (12.17 +- 1.26, 3 runs)]" in table
    assert "8.75 % (v1 Table 6)" in table
    assert "old" not in table


def test_only_like_and_finished_runs_are_collected(tmp_path):
    done = make_run(tmp_path)
    with pytest.raises(UserError, match="differ in nothing but the seed"):
        results.collect([done, make_run(tmp_path, model="resnet20")])
    with pytest.raises(UserError, match="only finished runs"):
        results.collect([done, make_run(tmp_path, seed=5, error=None)])


def test_summary_is_the_papers():
    assert str(Summary((4.0, 5.0, 9.0))) == "median 5.00 % (6.00 +- 2.65, 3 runs)"
    assert str(Summary((4.0,))) == "4.00 %"


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name)
def test_the_tables_of_the_pages_are_those_of_the_results(page):
    text = page.read_text()
    assert tables.filled(text, ROOT / "results") == text, "run `make tables`"


def test_tests_by_protocol_are_a_table(tmp_path):
    found = {"error": 27.5, "interval": [21.78, 34.07], "top5": {"error": 12.0, "interval": [8.2, 17.23]}}
    about = {"network": {"name": "resnet50"}, "data": "../some/tree", "images": 200, "views": "crop 224 of 256"}
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "a.json").write_text(json.dumps({**about, **found}))
    row = tables.imagenet(tmp_path).splitlines()[-1]
    assert "tree, 200 pictures | crop 224 of 256 | 27.50 % (21.8 to 34.1) | 12.00 % (8.2 to 17.2)" in row
