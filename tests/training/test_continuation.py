"""A longer run goes on from a finished shorter one where the schedule allows it, and ends with the same bytes."""

import json

import pytest
import tiny

from resnets import runs

CASES = {
    "ends in an epoch": {"length": "16it"},
    "ends at a logged step": {"length": "15it"},
    "ends with an epoch": {"length": "3ep"},
    "validation, a curve and the signal": {"length": "16it", "validation": 40, "curve": True, "signal_every": 5},
    "signal at its last step": {"length": "16it", "signal_every": 6},
    "average, micro-batches, precise BN": {"length": "16it", "ema": 0.9, "micro_batch": 20, "precise_bn": 100},
    "a constant rate": {"length": "16it", "schedule": "constant", "milestones": "", "optimizer": "Adam", "lr": 0.01},
}
SHORT = {"ends with an epoch": "2ep", "ends at a logged step": "9it"}


@pytest.mark.parametrize("name", CASES)
def test_a_longer_run_equals_one_that_was_so_long_from_the_start(tmp_path, capfd, name):
    options = CASES[name]
    short = tiny.train_tiny(tmp_path / "out", **{**options, "length": SHORT.get(name, "12it")})
    before = {path: path.read_bytes() for path in short.path.rglob("*") if path.is_file()}
    steps = []
    longer = tiny.train_tiny(tmp_path / "out", **options, callbacks=[Steps(steps)], quiet=False)
    done = short.config["steps"]
    assert steps[0] == done + 1, "no step is done twice"
    said = capfd.readouterr().err
    assert f"{longer.path} continues {short.path} after its {done:,} steps." in said
    assert longer.config["continues"] == {"run": short.path.name, "step": done}
    tiny.assert_same(tiny.train_tiny(tmp_path / "whole", **options), longer)
    assert {path: path.read_bytes() for path in short.path.rglob("*") if path.is_file()} == before
    assert len(runs.find(tmp_path / "out")) == 2


class Steps(tiny.Callback):
    def __init__(self, steps):
        self.steps = steps

    def on_step(self, training):
        self.steps.append(training.step)


def test_the_longest_of_several_is_continued(tmp_path):
    for length in ("4it", "9it", "6it"):
        run = tiny.train_tiny(tmp_path, length=length)
    assert run.config.get("continues", {}).get("step") == 4, "9 steps are too many for 6"
    longer = tiny.train_tiny(tmp_path, length="12it")
    assert longer.config["continues"]["step"] == 9


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"schedule": "cosine"}, "the learning rate of schedule cosine depends on the length of the training"),
        ({"schedule": "onecycle"}, "the learning rate of schedule onecycle depends on the length of the training"),
        ({"sizes": "8@0,16@0.5"}, "the size of the images (sizes) depends on the length of the training"),
    ],
)
def test_where_earlier_steps_depend_on_the_length_it_says_so_and_begins_anew(tmp_path, capfd, options, why):
    short = tiny.train_tiny(tmp_path / "out", **options, length="6it")
    longer = tiny.train_tiny(tmp_path / "out", **options, quiet=False)
    assert f"{short.path} is not continued, because {why}; training begins at step 0." in capfd.readouterr().err
    tiny.assert_same(longer, tiny.train_tiny(tmp_path / "whole", **options))


@pytest.mark.parametrize("damage", ["checkpoints", "metrics", "config"])
def test_a_damaged_shorter_run_is_not_continued(tmp_path, capfd, damage):
    short = tiny.train_tiny(tmp_path / "out", length="6it")
    if damage == "checkpoints":
        for path in short.checkpoints.iterdir():
            path.unlink()
    elif damage == "metrics":
        short.metrics_path.write_text(short.metrics_path.read_text().replace('"loss": 2', '"loss": 3'))
    else:
        short.config_path.write_text("{")
    longer = tiny.train_tiny(tmp_path / "out", quiet=False)
    assert ("is not continued, because it" in capfd.readouterr().err) == (damage != "config")
    tiny.assert_same(longer, tiny.train_tiny(tmp_path / "whole"))


def test_other_runs_are_not_continued(tmp_path):
    for other in ({"seed": 1}, {"lr": 0.05}, {"data": "synthetic:128"}, {"validation": 20}):
        tiny.train_tiny(tmp_path, length="4it", **other)
    assert "continues" not in tiny.train_tiny(tmp_path).config


def test_a_longer_run_that_is_killed_while_it_is_made_begins_again(tmp_path):
    """The config is written last: without it the folder is not a run."""
    tiny.train_tiny(tmp_path / "out", length="6it")
    longer = tiny.train_tiny(tmp_path / "out", length="9it")
    config = json.loads(longer.config_path.read_text())
    for path in (longer.config_path, longer.result_path, longer.weights):
        path.unlink()
    again = tiny.train_tiny(tmp_path / "out", length="9it")
    assert json.loads(again.config_path.read_text())["continues"] == config["continues"]
    tiny.assert_same(again, tiny.train_tiny(tmp_path / "whole", length="9it"))
