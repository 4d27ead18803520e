"""Write files of results, which published numbers are made from. No torch here.

`resnets results` collects finished runs into one file; `resnets reproduce` writes a file for each row, again after
every seed. Both write atomically.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.errors import UserError
from resnets.experiments.outcomes import read_row
from resnets.runs import Run, RunKey, Summary, group_variants, provenance_to_publish
from resnets.text import json_text

if TYPE_CHECKING:
    from resnets.experiments.plan import Job

POINTS = 200  # of a curve, at the most


# --- any runs ---------------------------------------------------------------------------------


def collect_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Finished runs as plain data: errors, their median, mean and deviation over seeds, curves, provenance.

    Runs that differ in more than the seed become `groups`, each of which has the form of a single one.
    """
    groups = group_variants(runs, lambda run: run.identity)
    found = [_collect_seeds(group) for group in groups.values()]
    if not found:
        raise UserError("no run was given to collect.")
    return found[0] if len(found) == 1 else {"groups": found}


def _collect_seeds(runs: Sequence[Run]) -> dict[str, Any]:
    """Runs of one variant with different seeds."""
    if unfinished := [str(run.path) for run in runs if run.result is None]:
        raise UserError(f"only finished runs can be collected; not finished: {', '.join(unfinished)}.")
    runs = sorted(runs, key=lambda run: run.identity.seed)
    for one, other in itertools.pairwise(runs):
        if one.identity.seed == other.identity.seed:
            raise UserError(f"{one.path} and {other.path} are the same run; leave one of them out.")
    described = runs[0].identity.to_dict()
    del described["seed"]
    results = [run.result or {} for run in runs]
    splits = [split for split in ("validation", "test") if all(split in result for result in results)]
    summary = {split: {"runs": len(runs), **_summarize(r[split] for r in results)} for split in splits}
    return {**described, "summary": summary, "runs": [_describe_run(run) for run in runs]}


def _describe_run(run: Run) -> dict[str, Any]:
    return {
        "seed": run.identity.seed,
        "result": run.result,
        **run.origin,
        "curves": {kind: [list(axis) for axis in _thin(*points)] for kind, points in _list_curves(run).items()},
    }


def _list_curves(run: Run) -> dict[str, tuple[list[int], list[float]]]:
    """The curves of a run; of several epochs the training error is that of whole epochs, which no noise of a few
    batches hides."""
    found, epochs = run.curves, run.epochs
    return {**found, "training": epochs} if len(epochs[0]) > 1 else found


def _thin(steps: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    """Every k-th point and the last."""
    every = -(-len(steps) // (POINTS - 1)) if len(steps) > POINTS else 1
    keep = sorted({*range(0, len(steps), every), len(steps) - 1})
    return [steps[i] for i in keep], [round(values[i], 5) for i in keep]


def _summarize(scores: Iterable[dict[str, Any]]) -> dict[str, float]:
    errors = Summary(tuple(score["error"] for score in scores))
    return {"median": errors.median, "mean": errors.mean, "std": errors.std}


def write_results(path: Path, result: dict[str, Any]) -> Path:
    make_folder_of(path)
    text = json_text(result, indent=1)
    # Each list of numbers on one line, for short diffs.
    text = re.sub(r"\[\s*([-\d.,\se]+?)\s*\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
    write_atomically(path, (text + "\n").encode())
    return path


# --- rows of the papers -----------------------------------------------------------------------


class FailedRun(Run):
    """A run that diverged: its loss is not finite. That is a result too."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path)
        self.why = why

    @property
    def result(self) -> dict[str, Any]:
        return {"failed": self.why}


@dataclasses.dataclass(frozen=True)
class RowFile:
    """The results of a job, in a folder of results."""

    folder: Path
    job: Job

    @property
    def path(self) -> Path:
        return self.folder / self.job.budget.name / f"{self.job.row.name}.json"

    def read(self) -> dict[str, Any] | None:
        """The results; None where there are none, or where the budget meant something else when they were written.

        Refuses a file that cannot be read: running the row again would overwrite it.
        """
        job = self.job
        if not self.path.exists():
            return None
        found = read_row(self.path).result
        same = found["network"] == job.spec.to_dict() and found["recipe"] == job.recipe.to_dict()
        same = same and found["scaled"] == list(job.scaled) and found.get("tests", []) == list(job.tests)
        pictures = job.source.folder
        return found if same and (pictures is None or found["data"]["digest"] == pictures.digest) else None

    @property
    def runs(self) -> dict[int, dict[str, Any]]:
        """The runs that have results, by seed."""
        return {run["seed"]: run for run in (self.read() or {"runs": []})["runs"]}

    def find_unmeasured(self, out: str) -> list[tuple[int, Run]]:
        """Seeds whose results are older than the measuring of responses, with their runs where these have weights."""
        found = self.read() or {"runs": []}
        old = [one["seed"] for one in found["runs"] if "signal" in one and "responses" not in one["signal"]]
        runs = [(seed, Run(Path(out) / RunKey.from_dict({**found, "seed": seed}).slug)) for seed in old]
        return [(seed, run) for seed, run in runs if run.weights.exists()]

    def replace_signal(self, seed: int, signal: dict[str, list[float]]) -> Path:
        """Replace the signal in the results of a seed, with the provenance of the new one."""
        found = self.read()
        assert found is not None
        runs = [
            {**run, "signal": signal, "responses_measured": provenance_to_publish()} if run["seed"] == seed else run
            for run in found["runs"]
        ]
        return write_results(self.path, {**found, "runs": runs})

    def add(self, run: Run, **measured: Any) -> Path:
        """Add a run that has ended, and what was measured of it, to the results of the other seeds."""
        job, collected = self.job, collect_runs([run])
        entry = {**collected.pop("runs")[0], "steps": job.steps, **measured}
        runs = [each for _, each in sorted({**self.runs, entry["seed"]: entry}.items())]
        result = {
            "row": job.row.name,
            "budget": job.budget.name,
            "scaled": list(job.scaled),
            "fails_above": job.limit,
            **({"tests": list(job.tests)} if job.tests else {}),
            **collected,
            "summary": _summarize_row(runs, job),
            "runs": runs,
        }
        return write_results(self.path, result)


def _summarize_row(runs: list[dict[str, Any]], job: Job) -> dict[str, Any]:
    """Median, mean and deviation of the errors; on ImageNet for each test, top-1 and top-5."""
    ended = [run for run in runs if "failed" not in run["result"]]
    summary: dict[str, Any] = {"runs": len(runs), "diverged": len(runs) - len(ended)}
    if not ended:
        return summary
    if not job.tests:
        return {**summary, job.row.split: _summarize(run["result"][job.row.split] for run in ended)}
    for test in job.tests:
        top1 = [run["tests"][test] for run in ended]
        summary[test] = {"top1": _summarize(top1), "top5": _summarize(score["top5"] for score in top1)}
    return summary
