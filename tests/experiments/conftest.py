"""Fixtures of this room."""

import pytest

from resnets.cli import main
from resnets.training.loop import Trainer


@pytest.fixture
def interrupted(monkeypatch):
    """The steps that trainings did; the fifth is cut off by Ctrl-C."""
    steps, step = [], Trainer.step

    def counted(self, i):
        steps.append(i)
        if len(steps) == 5:
            raise KeyboardInterrupt
        step(self, i)

    monkeypatch.setattr(Trainer, "step", counted)
    return steps


@pytest.fixture
def run_smoke(tmp_path, capsys):
    """`resnets reproduce ...` at the smoke budget; returns what it printed."""

    def run(*words, code=0):
        folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        assert main(["reproduce", *words, "--budget", "smoke", *folders]) == code
        return capsys.readouterr()

    return run
