"""A script: `python stopper.py STEP train ...` is `resnets train ...`, stopped by hand before a step."""

import sys

from resnets.cli import main
from resnets.training.loop import Trainer

step, at = Trainer.step, int(sys.argv[1])


def stops(self: Trainer, i: int) -> None:
    if i == at:
        raise KeyboardInterrupt
    step(self, i)


Trainer.step = stops  # type: ignore[method-assign]
code = main(sys.argv[2:])
sys.exit(0 if code == 130 else 1)
