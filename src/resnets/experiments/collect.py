"""Finished runs as one small JSON file in `results/`: what a published number is made from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.errors import UserError
from resnets.runs import Run, Summary
from resnets.text import json_text

POINTS = 200  # of a curve, at the most


def collect(runs: Sequence[Run]) -> dict[str, Any]:
    """Runs of one thing with different seeds: errors, median, mean and deviation, curves, provenance of each."""
    unfinished = [str(run.path) for run in runs if run.result is None]
    if unfinished or not runs:
        raise UserError(
            f"only finished runs can be collected; not finished: {', '.join(unfinished) or 'no run given'}."
        )
    identities = [dataclasses.replace(run.identity, seed=0) for run in runs]
    if any(identity != identities[0] for identity in identities):
        raise UserError("only runs that differ in nothing but the seed can be collected into one result.")
    described = identities[0].to_dict()
    del described["seed"]
    results = [run.result or {} for run in runs]
    splits = [split for split in ("validation", "test") if all(split in result for result in results)]
    return {
        **described,
        "summary": {split: _summary([r[split]["error"] for r in results]) for split in splits},
        "runs": [_entry(run) for run in sorted(runs, key=lambda run: run.identity.seed)],
    }


def _summary(errors: list[float]) -> dict[str, Any]:
    summary = Summary(tuple(errors))
    return {"runs": len(errors), "median": summary.median, "mean": summary.mean, "std": summary.std}


def _entry(run: Run) -> dict[str, Any]:
    return {
        "seed": run.identity.seed,
        "result": run.result,
        **run.origin,
        "curves": {kind: [list(axis) for axis in _thin(*points)] for kind, points in run.curves.items()},
    }


def _thin(steps: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    """Every k-th point and the last."""
    every = -(-len(steps) // (POINTS - 1)) if len(steps) > POINTS else 1
    keep = sorted({*range(0, len(steps), every), len(steps) - 1})
    return [steps[i] for i in keep], [round(values[i], 5) for i in keep]


def write(path: Path, result: dict[str, Any]) -> None:
    make_folder_of(path)
    text = json_text(result, indent=1)
    write_atomically(path, (_one_line_lists(text) + "\n").encode())


def _one_line_lists(text: str) -> str:
    """Lists of numbers on one line each, so that a diff can be read."""
    return re.sub(r"\[\s*([-\d.,\se]+?)\s*\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
