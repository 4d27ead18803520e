"""A loss that is not finite stops the run, and no checkpoint ever holds what is not."""

import math
import re

import pytest
import tiny
import torch

from resnets import runs
from resnets.cli import main
from resnets.errors import DivergedError, UserError
from resnets.training import checkpoint
from resnets.training.loop import Trainer

WILD = {"lr": 1e20, "warmup": "5it", "warmup_lr": 0.01, "length": "40it", "milestones": ""}


def whole(run):
    """The steps of the checkpoints, all of whose numbers are finite."""
    kept = [checkpoint.newest(run.checkpoints, pytest.fail)]
    paths = checkpoint.list_checkpoints(run.checkpoints)
    paths[0].unlink()
    kept += [checkpoint.newest(run.checkpoints, pytest.fail)] if len(paths) > 1 else []
    for one in kept:
        for name, tensor in one.tensors.items():
            assert tensor.isfinite().all(), f"{name} of step {one.step}"
    return [one.step for one in kept]


@pytest.mark.parametrize("log_every", [1, 3, 50])
@pytest.mark.parametrize("checkpoint_every", [0, 3600])
def test_a_huge_rate_stops_the_run_with_step_rate_and_checkpoint_named(tmp_path, log_every, checkpoint_every):
    """Also where the loss is logged long after it went wrong and a checkpoint was due in between."""
    with pytest.raises(DivergedError) as told:
        tiny.train_tiny(tmp_path, log_every=log_every, checkpoint_every=checkpoint_every, **WILD)
    (run,) = runs.find(tmp_path)
    assert told.value.path == run.path
    assert str(told.value).startswith(f"{told.value.why}; the last good checkpoint")
    sentence = str(told.value)
    assert f"the last good checkpoint is {checkpoint.list_checkpoints(run.checkpoints)[0]}" in sentence
    step = int(re.search(r"in step (\d+) ", sentence)[1])
    assert 5 <= step < 12
    assert "(learning rate 1e+20)" in sentence
    assert "lower the learning rate" in sentence
    assert run.result is None
    assert not run.weights.exists()
    assert all(math.isfinite(line["loss"]) for line in run.metrics())
    steps = whole(run)
    assert max(steps) <= step
    if checkpoint_every == 0:
        assert max(steps) >= 5


def test_the_command_exits_with_2_and_one_line(tmp_path, capsys):
    words = ["train", "preresnet20", "--data", "synthetic:256", "--widths", "4,8,8", "--blocks", "1", "--quiet"]
    words += ["--length", "20it", "--batch", "32", "--warmup", "0it", "--lr", "1e20", "--out", str(tmp_path)]
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("resnets: ")
    assert "is not finite in step" in said[0]


def test_weights_that_go_wrong_in_the_very_last_step_are_not_kept(tmp_path, monkeypatch):
    """The loss of the last step is finite; what it does to the weights is not."""
    step = Trainer.step

    def poisoned(self, i):
        step(self, i)
        if i == 11:
            with torch.no_grad():
                self.net.classifier.bias[0] = math.nan

    monkeypatch.setattr(Trainer, "step", poisoned)
    with pytest.raises(UserError, match=r"classifier\.bias is not finite in step 11 .*the last good checkpoint is "):
        tiny.train_tiny(tmp_path)
    (run,) = runs.find(tmp_path)
    assert run.result is None
    assert not run.weights.exists()
    assert whole(run) == [0]


def test_the_same_command_again_fails_at_the_same_step(tmp_path):
    told = []
    for _ in range(2):
        with pytest.raises(UserError) as error:
            tiny.train_tiny(tmp_path, checkpoint_every=0, **WILD)
        told.append(str(error.value))
    assert told[0].split(";")[0] == told[1].split(";")[0]
