"""How long a recipe trains until a given share of held-out images is wrong: `python -m benchmarks.race RECIPE`.

`cifar-94` trains to its end on all training images and is tested once, as the record recipe beside it does: the command
that a user types, from its start to its test, and the run stays in build/bench/race94 for whoever wants it. The papers'
recipe keeps its learning rate for half of its length, so it is tested four times an epoch and stops as soon
as it is there. Ours decays over its length, so its length is chosen beforehand and only its end counts. Both train by
the same engine, and of these two only the time of training counts. Prints one line of JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.lines import GOAL, NET94
from benchmarks.timing import ROOT
from resnets.data import load
from resnets.engine.allocator import keep_freed_memory
from resnets.recipe import recipe_of
from resnets.training.classification import Classification
from resnets.training.loop import Trainer
from resnets.zoo import spec_of

HELD_OUT = 5000
GIVEN = 30  # epochs, to get there
QUICK = "3ep"


def race_to_end(name: str) -> dict[str, float]:
    """Seconds of the whole command, and the test error: of six views of each image, of two, and of one."""
    runs = Path("build", "bench", "race94")
    shutil.rmtree(ROOT / runs, ignore_errors=True)  # a finished run would be returned at once
    words = ("train", NET94, "--data", "cifar10", "--recipe", name, "--seed", "0", "--out", str(runs))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "resnets", *words], check=True, stdout=sys.stderr, cwd=ROOT)
    seconds = time.perf_counter() - began
    (result,) = (ROOT / runs).glob("*/result.json")
    score = json.loads(result.read_text())["test"]
    errors = {"error": score["shifted"], "two_views": score["mirrored"], "one_view": score}
    return {"seconds": seconds, **{name: found["error"] for name, found in errors.items()}}


def race(name: str) -> dict[str, float]:
    own = name == "cifar-quick"
    recipe = recipe_of(name, validation=HELD_OUT, **({"length": QUICK} if own else {}))
    keep_freed_memory()
    trainer = Trainer(Classification(spec_of("preresnet20"), load("cifar10", None)), recipe, seed=0)
    epoch = trainer.stream.n // recipe.batch
    steps, tested = (trainer.schedule.total,) * 2 if own else (GIVEN * epoch, epoch // 4)
    seconds = 0.0
    for step in range(1, steps + 1):
        began = time.perf_counter()
        trainer.step(step - 1)
        seconds += time.perf_counter() - began
        if step % tested == 0:
            error = trainer.score("validation")["error"]
            print(f"{name}: {step / epoch:.2f} epochs, {error:.2f} %", file=sys.stderr, flush=True)
            if error <= GOAL:
                return {"seconds": seconds, "epochs": step / epoch, "error": error}
    raise SystemExit(f"not at {GOAL} % after {steps / epoch:.0f} epochs")


if __name__ == "__main__":
    print(json.dumps((race_to_end if sys.argv[1] == "cifar-94" else race)(sys.argv[1])))
