"""What `resnets train` does: one run for each seed; their errors are printed beside the papers' number."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from resnets.errors import UserError
from resnets.papers.numbers import beside
from resnets.report.curves import draw
from resnets.runs import Run, Summary
from resnets.spec import Spec
from resnets.text import print_lines, say
from resnets.training.options import TrainOptions
from resnets.training.session import train


def train_command(model: str, seeds: range, options: TrainOptions, fields: dict[str, Any]) -> None:
    """`fields` are those of the recipe and of the network."""
    runs = []
    for seed in seeds:
        run = train(model, options=dataclasses.replace(options, seed=seed), **fields)
        runs.append(run)
        if _is_main():
            print_result(run)
    if _is_main() and len(runs) > 1:
        results = [run.result or {} for run in runs]
        for split in ("validation", "test"):
            errors = tuple(result[split]["error"] for result in results if split in result)
            if errors:
                print_lines(f"{split} error over {len(runs)} runs: {Summary(errors)}")


def _is_main() -> bool:
    """Whether this process prints; torchrun numbers the processes."""
    return os.environ.get("RANK", "0") == "0"


def print_result(run: Run) -> None:
    """The scores of a finished run, and its curves."""
    result, identity = run.result or {}, run.identity
    what = f"{identity.network.name} on {identity.data}, seed {identity.seed}, {result['steps']:,} iterations"
    for split in ("validation", "test"):
        if split in result:
            low, high = result[split]["interval"]
            print_lines(f"{what}: {split} error {result[split]['error']:.2f} % (95 % interval {low:.2f} to {high:.2f})")
    if "test" in result and isinstance(identity.network, Spec) and (theirs := beside(identity.network, identity.data)):
        print_lines(theirs)
    print_lines(f"run: {run.path}")
    try:
        print_lines(f"curves: {run.picture if run.picture.exists() else draw([run], run.picture)}")
    except UserError as error:
        say(f"no curves: {error}")
