"""The file of a row's results: written anew after every seed, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from resnets.report import results as report
from resnets.reproduce.plan import Job
from resnets.runs import Run, Summary


class Failed(Run):
    """A run that ended in a loss that is not finite: as much of a result as an error is."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path)
        self.why = why

    @property
    def result(self) -> dict[str, Any]:
        return {"failed": self.why}


def path_of(folder: Path, job: Job) -> Path:
    return folder / job.budget.name / f"{job.row.name}.json"


def known(folder: Path, job: Job) -> dict[str, Any] | None:
    """What is there of a job; None where there is nothing, or something that the budget once meant otherwise."""
    try:
        found = json.loads(path_of(folder, job).read_text())
        same = found["network"] == job.spec.to_dict() and found["recipe"] == job.recipe.to_dict()
        return found if same and found["scaled"] == list(job.scaled) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def seeds_done(folder: Path, job: Job) -> set[int]:
    found = known(folder, job)
    return {run["seed"] for run in found["runs"]} if found else set()


def add(folder: Path, job: Job, run: Run, signal: dict[str, list[float]] | None) -> Path:
    """Put a run that has ended beside those of the other seeds."""
    collected = report.collect([run])
    entry = {**collected.pop("runs")[0], "steps": job.steps}
    if signal is not None:
        entry["signal"] = signal
    others = (known(folder, job) or {"runs": []})["runs"]
    runs = sorted([*(r for r in others if r["seed"] != entry["seed"]), entry], key=lambda r: r["seed"])
    result = {
        "row": job.row.name,
        "budget": job.budget.name,
        "scaled": list(job.scaled),
        "fails_above": job.limit,
        **collected,
        "summary": _summary(runs, job.row.split),
        "runs": runs,
    }
    path = path_of(folder, job)
    half = path.with_name(f".{path.name}.part")
    report.write(half, result)
    half.replace(path)
    return path


def _summary(runs: list[dict[str, Any]], split: str) -> dict[str, Any]:
    errors = tuple(run["result"][split]["error"] for run in runs if split in run["result"])
    summary: dict[str, Any] = {"runs": len(runs), "diverged": len(runs) - len(errors)}
    if errors:
        told = Summary(errors)
        summary[split] = {"median": told.median, "mean": told.mean, "std": told.std}
    return summary
