"""Runs that a new run can continue: the same run with another path of its data, or a shorter run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.recipe import Epochs
from resnets.runs import Run, RunKey, provenance
from resnets.training import checkpoint
from resnets.training.checkpoint import Checkpoint
from resnets.training.options import TrainOptions
from resnets.training.schedule import Schedule


def find_same_data(out: Path, key: RunKey, folder: Path) -> RunKey:
    """The key of a run in `out` that differs only in how the path of its data was written, or the key itself."""
    for run, other in _read_runs(out.glob("*/config.json")):
        if run.config.get("data_path") == str(folder) and dataclasses.replace(other, data=key.data) == key:
            return other
    return key


def _read_runs(configs: Iterator[Path]) -> Iterator[tuple[Run, RunKey]]:
    for path in sorted(configs):
        try:
            run = Run(path.parent)
            yield run, run.identity
        except UserError:  # another command reports damaged runs
            continue


def continue_shorter(
    run: Run, key: RunKey, schedule: Schedule, options: TrainOptions, *, statistics: str, tell: Callable[[str], None]
) -> None:
    """Let a new run continue a finished run that differs from it only in a shorter length, if there is one.

    The new run ends with the bytes of a run that was this long from the start: metrics that the shorter run has only
    because it ended there are left out.
    """
    if run.exists:
        return
    pattern = f"{key.slug.rpartition('-')[0]}-????????/config.json"
    shorter = [found for found, other in _read_runs(run.path.parent.glob(pattern)) if _is_shorter(found, other, key)]
    shorter = [found for found in shorter if found.config["steps"] < schedule.total]
    if not shorter:
        return
    other = max(shorter, key=lambda found: found.config["steps"])
    if why := _find_obstacle(other, key, statistics):
        tell(f"{other.path} is not continued, because {why}; training begins at step 0.")
        return
    saved = checkpoint.newest(other.checkpoints)
    lines = _select_lines(other, saved, Epochs(schedule.images, key.recipe.batch), options)
    state = {"lines": len(lines), "scores": saved.state["scores"], "run": key.slug}
    state["metrics"] = hashlib.sha256(b"".join(lines)).hexdigest()
    write_atomically(run.metrics_path, b"".join(lines))
    checkpoint.save(run.checkpoints, Checkpoint(saved.step, saved.tensors, state))
    config = {**other.config, "run": key.to_dict(), "steps": schedule.total, "command": provenance()["command"]}
    config |= {"options": options.to_dict(), "continues": {"run": other.path.name, "step": saved.step}}
    write_atomically(run.config_path, json.dumps(config, indent=1).encode())
    tell(f"{run.path} continues {other.path} after its {saved.step:,} steps.")


def _is_shorter(run: Run, other: RunKey, key: RunKey) -> bool:
    recipe = dataclasses.replace(other.recipe, length=key.recipe.length)
    return run.result is not None and other != key and dataclasses.replace(other, recipe=recipe) == key


def _find_obstacle(other: Run, key: RunKey, statistics: str) -> str | None:
    if reason := key.recipe.depends_on_length:
        return f"{reason} depends on the length of the training"
    if other.config.get("statistics", statistics) != statistics:
        return "its pixels were normalised in another way"
    try:
        saved = checkpoint.newest(other.checkpoints)
    except UserError:
        return "it has no whole checkpoint"
    if saved.step != other.config["steps"] or other.find_metrics_damage(
        saved.state["lines"], saved.state.get("metrics")
    ):
        return "its last checkpoint or its metrics are damaged"
    return None


def _select_lines(other: Run, saved: Checkpoint, stream: Epochs, options: TrainOptions) -> list[bytes]:
    """The metrics before the checkpoint that a longer run has as well."""
    ends_epoch = stream.epoch(saved.step) > stream.epoch(saved.step - 1)

    def is_kept(line: dict[str, Any]) -> bool:
        if line.get("step") != saved.step:
            return True
        match line.get("kind"):
            case "signal":
                return bool(options.signal_every) and saved.step % options.signal_every == 0
            case "train":
                return ends_epoch or saved.step % options.log_every == 0
            case "epoch" | "validation" | "test":
                return ends_epoch
        return True

    lines = other.read_metrics_start(saved.state["lines"]).splitlines(keepends=True)
    return [line for line in lines if is_kept(json.loads(line))]
