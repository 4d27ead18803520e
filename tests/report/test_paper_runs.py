"""Trainings by v1's recipe beside v1's numbers, from a run whose folder was written by hand."""

import json

import pytest

from resnets import spec_of
from resnets.cli import main
from resnets.recipe import recipe_of
from resnets.runs import Run, RunKey, provenance
from tools.tables import pages, paper_runs

PAGE = "<!-- results: cifar-paper -->\nold\n<!-- end -->\n"
EPOCH = 391


def write_run(folder, error, model="resnet20", epochs=164, **changes):
    """A run with a line every 50 steps, and training and test error after every epoch."""
    identity = RunKey(spec_of(model), "cifar10", "d1ge57", recipe_of("cifar-paper", **changes), 0)
    run = Run(folder / identity.slug)
    run.path.mkdir(parents=True)
    run.config_path.write_text(json.dumps({"run": identity.to_dict(), "steps": 64_000, **provenance()}))
    lines = [
        {"kind": "train", "step": step, "loss": 1.0, "error": 77.0, "images_per_second": 1.0}
        for step in range(50, 64_001, 50)
    ]
    for epoch in range(1, epochs + 1):
        step = min(EPOCH * epoch, 64_000)
        lines.append({"kind": "epoch", "step": step, "loss": 1.0, "error": 40 / epoch})
        lines.append({"kind": "test", "step": step, "loss": 1.0, "error": error + 40 / epoch - 40 / epochs})
    run.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    test = {"error": error, "interval": [error - 0.54, error + 0.57]}
    run.result_path.write_text(json.dumps({"steps": 64_000, "test": test}))
    return run


def collect(run, results):
    out = results / "cifar" / f"{run.identity.network.name}-cifar-paper.json"
    assert main(["results", str(run.path), "-o", str(out)]) == 0
    return json.loads(out.read_text())


def test_a_result_has_training_and_test_error_of_every_epoch(tmp_path):
    curves = collect(write_run(tmp_path / "runs", 8.9), tmp_path / "results")["runs"][0]["curves"]
    assert {name: len(steps) for name, (steps, _) in curves.items()} == {"loss": 184, "training": 164, "test": 164}
    assert curves["training"][0][:2] == curves["test"][0][:2] == [EPOCH, 2 * EPOCH]
    assert curves["training"][1][:2] == [40.0, 20.0]  # not those of a few batches, 77
    assert curves["test"][1][-1] == 8.9


def test_a_run_of_one_epoch_keeps_the_errors_of_its_batches(tmp_path):
    curves = collect(write_run(tmp_path / "runs", 60.0, epochs=1), tmp_path / "results")["runs"][0]["curves"]
    assert set(curves["training"][1]) == {77.0}


def test_without_such_a_training_nothing_is_shown(tmp_path):
    empty = "<!-- results: cifar-paper -->\n\n<!-- end -->\n"
    assert pages.fill_page(PAGE, tmp_path / "results") == empty
    collect(write_run(tmp_path / "runs", 9.5, lr=0.05), tmp_path / "results")  # a recipe of the name, but changed
    assert pages.fill_page(PAGE, tmp_path / "results") == empty
    paper_runs.draw(tmp_path / "results")
    assert not list((tmp_path / "results").glob("*.svg"))


def test_the_number_its_interval_and_the_difference_to_the_paper(tmp_path):
    pytest.importorskip("matplotlib")
    results = tmp_path / "results"
    collect(write_run(tmp_path / "runs", 8.9), results)
    collect(write_run(tmp_path / "runs", 9.6, "plain20"), results)
    text = pages.fill_page(PAGE, results)
    path = "../results/cifar/resnet20-cifar-paper.json"
    assert f"| resnet20 | cifar10 | [8.90 % (8.4 to 9.5), 1 run]({path}) | 8.75 % (v1 Table 6) | +0.15 points |" in text
    assert (
        "| plain20 | cifar10 | [9.60 % (9.1 to 10.2), 1 run](../results/cifar/plain20-cifar-paper.json) | - | - |"
        in text
    )
    assert (
        '<img src="../results/cifar-paper.svg" alt="plain20, resnet20 with cifar-paper: training error (dashed)' in text
    )
    paper_runs.draw(results)
    light, dark = ((results / f"cifar-paper{ending}.svg").read_bytes() for ending in ("", "-dark"))
    for drawn in (light, dark):
        assert b"resnet20: test error 8.90 %" in drawn
        assert b"resnet20 in v1 Table 6: 8.75 %" in drawn
    assert b"#e6e6e6" in dark
    paper_runs.draw(results)
    assert (results / "cifar-paper.svg").read_bytes() == light
