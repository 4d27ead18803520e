"""Fixtures of this room."""

import pytest

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
