"""A run ends with the same bytes on any number of threads, also if the number changes on the way."""

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resnets import runs
from resnets.engine import threads
from resnets.engine.native.build import load
from tests.training import tiny

ROOT = Path(__file__).parents[2]
WIDE = {
    "network": {"widths": (8, 16, 16), "blocks": 1},
    **{"optimizer": "muon", "muon_lr": 0.1, "nesterov": True, "ema": 0.9},
}
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from resnets.training.loop import Trainer
from tests.training import tiny
from tests.training.test_threads_of_runs import WIDE

step = Trainer.step

def strike(self, i):
    if i == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    step(self, i)

Trainer.step = strike
tiny.train_tiny(sys.argv[1], **WIDE, threads="2", checkpoint_every=0)
"""
pytestmark = pytest.mark.skipif(load().kernels is None, reason="the kernels are not compiled here")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny.train_tiny(tmp_path_factory.mktemp("whole"), **WIDE, threads="1")


def test_a_run_killed_on_two_threads_and_finished_on_one(tmp_path, whole):
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (cut,) = runs.find(tmp_path)
    assert cut.result is None
    run = tiny.train_tiny(tmp_path, **WIDE, threads="1")
    tiny.assert_same(run, whole)
    assert run.config["engine"]["threads"] == "any"
    assert "resumed" not in run.config


def test_another_number_of_threads_in_every_step(tmp_path, whole, monkeypatch):
    counts = itertools.cycle((1, 2, 3, 4))
    used = []

    def tick(self, key):
        used.append(next(counts))
        self.apply(used[-1])

    monkeypatch.setattr(threads.Follower, "tick", tick)
    tiny.assert_same(tiny.train_tiny(tmp_path, **WIDE, threads="auto"), whole)
    assert set(used) == {1, 2, 3, 4}


def test_a_run_that_pytorch_computes_says_that_threads_change_its_rounding(tmp_path, capfd):
    run = tiny.train_tiny(tmp_path / "plain", engine="plain", quiet=False, threads="1")
    said = capfd.readouterr()
    assert (
        "another number of threads than 1 would change the rounding, as PyTorch alone computes it"
        in said.err + said.out
    )
    assert run.config["engine"]["threads"] == 1


def test_an_older_run_of_other_kernels_is_resumed_with_a_sentence(tmp_path, monkeypatch, capfd):
    import json

    from resnets.engine.native.kernels import VERSION
    from tests.training.test_resume import interrupted

    with monkeypatch.context() as patch:
        interrupted(patch, 7, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tiny.train_tiny(tmp_path, **WIDE, checkpoint_every=0)
    (run,) = runs.find(tmp_path)
    config = run.config
    del config["engine"]["kernels"]
    config["engine"]["threads"] = 2
    run.config_path.write_text(json.dumps(config))
    tiny.train_tiny(tmp_path, **WIDE, quiet=False)
    assert f"goes on with kernels {VERSION} instead of 1: all is the same up to rounding" in capfd.readouterr().err
