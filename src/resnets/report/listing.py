"""List the runs of a folder: their progress, their errors and how they differ."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resnets.differences import sort_naturally, summarize_differences
from resnets.errors import UserError
from resnets.runs import Run, RunKey, find


@dataclass(frozen=True)
class RunSummary:
    """The state and the errors of a run, in per cent, on `error_on` images."""

    run: str  # the name of its folder
    state: str  # finished, training or stopped
    step: int
    steps: int
    loss: float | None  # of the last steps of training
    error_on: str | None  # test, validation, or training where nothing else was measured yet
    last_error: float | None
    best_error: float | None
    validation: float | None  # of a finished run
    test: float | None
    interval: tuple[float, float] | None  # 95 %, of the error of a finished run
    seconds_left: int | None
    images_per_second: float | None  # the median
    memory: int | None  # the peak, in MiB
    differs: dict[str, str] = field(default_factory=dict)  # the fields that differ between the runs of the list
    path: Path = field(default=Path(), repr=False)
    key: RunKey | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("path", "key")}


def list_runs(folder: str | os.PathLike[str], leave_out: Callable[[UserError], None] | None = None) -> list[RunSummary]:
    """The runs in a folder, sorted by what differs between them, seeds last.

    A run that cannot be read raises `UserError`, or is given to `leave_out` and left out.

    >>> for run in resnets.list_runs("runs"):
    ...     print(run.run, run.differs, run.last_error)
    """
    return summarize_runs(find(Path(folder)), leave_out)


def summarize_runs(runs: Sequence[Run], leave_out: Callable[[UserError], None] | None = None) -> list[RunSummary]:
    """Summaries of runs, sorted, each with what differs between these runs."""
    found = []
    for run in runs:
        try:
            found.append(summarize_run(run))
        except UserError as error:
            if leave_out is None:
                raise
            leave_out(error)
    columns = summarize_differences([one.key for one in found if one.key])
    for i, one in enumerate(found):
        found[i] = dataclasses.replace(one, differs={name: column[i] for name, column in columns.items()})
    return sorted(found, key=lambda one: ([sort_naturally(value) for value in one.differs.values()], one.run))


def summarize_run(run: Run) -> RunSummary:
    """State, progress and errors of one run; the time left is estimated from its last speed."""
    config, key, result, curves = run.config, run.identity, run.result, run.curves
    lines = [line for line in run.metrics() if line["kind"] == "train"]
    last = lines[-1] if lines else None
    state = "finished" if result else "training" if run.is_locked else "stopped"
    step = result["steps"] if result else find_step(run, last["step"] if last else 0, state)
    measured = ("validation", "test") if key.recipe.validation else ("test", "validation")
    split = next((name for name in (*measured, "training") if name in curves), None)
    errors = curves[split][1] if split else []
    score = (result or {}).get(split or "", {})
    speeds = [line["images_per_second"] for line in lines]
    return RunSummary(
        run=run.path.name,
        state=state,
        step=step,
        steps=config["steps"],
        loss=last["loss"] if last else None,
        error_on=split,
        last_error=errors[-1] if errors else None,
        best_error=min(errors, default=None),
        validation=(result or {}).get("validation", {}).get("error"),
        test=(result or {}).get("test", {}).get("error"),
        interval=tuple(score["interval"]) if "interval" in score else None,
        seconds_left=None if result else _estimate_seconds_left(config["steps"] - step, key.recipe.batch, speeds),
        images_per_second=statistics.median(speeds) if speeds else None,
        memory=max((line["memory"] for line in lines if line.get("memory")), default=None),
        path=run.path,
        key=key,
    )


def find_step(run: Run, logged: int, state: str) -> int:
    """The step that a run has reached; for a stopped run, the step from which it will resume."""
    kept = run.checkpoint_step
    if kept is None:
        return logged
    return kept if state == "stopped" else max(kept, logged)


def _estimate_seconds_left(steps: int, batch: int, speeds: Sequence[float]) -> int | None:
    left = max(0, steps) * batch / speeds[-1] if speeds and speeds[-1] else math.inf
    return round(left) if math.isfinite(left) else None
