"""The file of a row's results: written anew after every seed, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from resnets.experiments import collect as report
from resnets.experiments.outcomes import read_row
from resnets.experiments.plan import Job
from resnets.runs import Run, RunKey, Summary, provenance


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
    """What is there of a job; None where there is nothing, or something that the budget once meant otherwise.

    A file that cannot be read is refused: to run the row anew would write over what it holds.
    """
    path = path_of(folder, job)
    if not path.exists():
        return None
    found = read_row(path).result
    same = found["network"] == job.spec.to_dict() and found["recipe"] == job.recipe.to_dict()
    same = same and found["scaled"] == list(job.scaled) and found.get("tests", []) == list(job.tests)
    pictures = job.source.folder
    return found if same and (pictures is None or found["data"]["digest"] == pictures.digest) else None


def seeds_done(folder: Path, job: Job) -> set[int]:
    found = known(folder, job)
    return {run["seed"] for run in found["runs"]} if found else set()


def lacking(folder: Path, job: Job, out: Path) -> Iterator[tuple[int, Run]]:
    """Seeds whose results are older than the measuring of responses, with their runs where these have weights."""
    found = known(folder, job) or {"runs": []}
    for entry in found["runs"]:
        run = Run(out / RunKey.from_dict({**found, "seed": entry["seed"]}).slug)
        if "signal" in entry and "responses" not in entry["signal"] and run.weights.exists():
            yield entry["seed"], run


def entry_of(folder: Path, job: Job, seed: int) -> dict[str, Any]:
    """Of a seed that is done."""
    return next(entry for entry in (known(folder, job) or {"runs": []})["runs"] if entry["seed"] == seed)


def add_later(folder: Path, job: Job, seed: int, signal: dict[str, list[float]]) -> Path:
    """Put a signal with more in it into the results of a seed, and say when and by what it was measured."""
    found = known(folder, job)
    assert found is not None
    runs = [
        {**run, "signal": signal, "responses_measured": provenance()} if run["seed"] == seed else run
        for run in found["runs"]
    ]
    return _write(path_of(folder, job), {**found, "runs": runs})


def add(folder: Path, job: Job, run: Run, **measured: Any) -> Path:
    """Put a run that has ended, and what was measured of it, beside those of the other seeds."""
    collected = report.collect([run])
    entry = {**collected.pop("runs")[0], "steps": job.steps, **measured}
    others = (known(folder, job) or {"runs": []})["runs"]
    runs = sorted([*(r for r in others if r["seed"] != entry["seed"]), entry], key=lambda r: r["seed"])
    result = {
        "row": job.row.name,
        "budget": job.budget.name,
        "scaled": list(job.scaled),
        "fails_above": job.limit,
        **({"tests": list(job.tests)} if job.tests else {}),
        **collected,
        "summary": _summary(runs, job),
        "runs": runs,
    }
    return _write(path_of(folder, job), result)


def _write(path: Path, result: dict[str, Any]) -> Path:
    report.write(path, result)
    return path


def _summary(runs: list[dict[str, Any]], job: Job) -> dict[str, Any]:
    """Median, mean and deviation of the errors; on ImageNet for each test, top-1 and top-5."""
    ended = [run for run in runs if "failed" not in run["result"]]
    summary: dict[str, Any] = {"runs": len(runs), "diverged": len(runs) - len(ended)}
    if not ended:
        return summary
    if not job.tests:
        return {**summary, job.row.split: _spread(run["result"][job.row.split] for run in ended)}
    for test in job.tests:
        top1 = [run["tests"][test] for run in ended]
        summary[test] = {"top1": _spread(top1), "top5": _spread(score["top5"] for score in top1)}
    return summary


def _spread(scores: Iterable[dict[str, Any]]) -> dict[str, float]:
    told = Summary(tuple(score["error"] for score in scores))
    return {"median": told.median, "mean": told.mean, "std": told.std}
