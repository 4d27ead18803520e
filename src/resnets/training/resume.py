"""Whether the run in a folder is the one that is asked for, and whether it can be resumed as it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from resnets.detection.detector import FasterRCNN
from resnets.engine.native.kernels import VERSION
from resnets.engine.prepared import Prepared
from resnets.errors import UserError
from resnets.recipe import Recipe
from resnets.runs import NetworkKey, Run, RunKey


def is_finished(run: Run, key: RunKey, statistics: str, world: int, tell: Callable[[str], None]) -> bool:
    """Whether the run has its result, which `tell` then reports; a folder with another run is refused."""
    if not run.exists and run.result is None:
        return False
    run.require_identity(key)
    _require_statistics(run, key, statistics)
    if run.result is None:
        return False
    tell(describe_finished(run, key, world))
    return True


def _require_statistics(run: Run, key: RunKey, statistics: str) -> None:
    """Refuse to go on with pixels that are normalised in another way."""
    if run.result is None and _saw_held_out(run, key):
        raise UserError(
            f"the mean image of {run.path} was taken over held-out images too, as older versions did, and must not "
            "change within a run: choose another --out to start a new run, or finish it with the version that began it."
        )
    if run.config.get("statistics", statistics) != statistics:
        raise UserError(
            f"{run.path} was trained with another mean or deviation of the pixels than these images are given with; "
            "give them the old ones, or choose another --out."
        )


def describe_finished(run: Run, key: RunKey, world: int) -> str:
    """A sentence: the run is finished, and how it was trained if this command would train it in another way."""
    began = read_processes(run.config)
    sentence = f"{run.path} is finished"
    if began not in (None, world):
        sentence += f"; it was trained by {count(began, 'process')}, each with its share of a batch"
    if _saw_held_out(run, key):
        sentence += "; its mean image was taken over held-out images too, as older versions did"
    return f"{sentence}."


def _saw_held_out(run: Run, key: RunKey) -> bool:
    recipe = key.recipe
    return recipe.normalize == "pixel" and recipe.validation > 0 and "statistics" not in run.config


# --- processes --------------------------------------------------------------------------------


def resolve_processes(run: Run, config: dict[str, Any], world: int, spec: NetworkKey, recipe: Recipe) -> int:
    """The number of shares of a batch with which the run computes what it began with, or a refusal.

    BN sees the images of a share together, or of each micro-batch of it. Fewer processes can take on the shares of
    more; a share cannot be divided. BN over all devices sees whole batches, however many there are.
    """
    began = read_processes(config)
    shortcut = getattr(spec, "shortcut", None)
    whole = recipe.sync_bn and not recipe.micro_batch and not (shortcut and shortcut.random)
    if began in (None, world) or whole:
        return world
    assert began is not None
    if world > began or recipe.sync_bn:
        at_most = "exactly" if recipe.sync_bn else "at most"
        raise UserError(
            f"{run.path} began with {count(began, 'process')} and cannot go on with {world}, as BN would see other "
            f"images together: start {at_most} {began}, or choose another --out to start a new run."
        )
    return began


def read_processes(config: dict[str, Any]) -> int | None:
    """How many processes began a run; None for older runs, which do not record it."""
    engine = config.get("engine")
    found = engine.get("processes") if isinstance(engine, dict) else None
    return found if isinstance(found, int) and found > 0 else None


# --- what changes rounding alone --------------------------------------------------------------


def describe_engine(
    model: nn.Module, *, engine: str, memory: str, device: torch.device, processes: int
) -> dict[str, Any]:
    """What a run is computed by, as `config.json` records it."""
    units = _list_runners(model)
    return {
        "engine": engine,
        "memory": memory,
        "units": " ".join(units),
        "device": device.type,
        "processes": processes,
        "threads": "any" if find_thread_dependence(model) is None else torch.get_num_threads(),
        **({"kernels": VERSION} if "native" in units else {}),
    }


def find_thread_dependence(model: nn.Module) -> str | None:
    """Why the bytes of a training step depend on the number of threads, or None if they do not."""
    if isinstance(model, (Prepared, FasterRCNN)):
        return model.find_thread_dependence()
    return "PyTorch alone computes it"


def _list_runners(model: nn.Module) -> list[str]:
    """What runs the units of a network."""
    if isinstance(model, FasterRCNN):
        return ["plain" if model.backbone.kernels is None else "native"]
    return sorted({choice.runner for choice in model.choices}) if isinstance(model, Prepared) else ["plain"]


def find_changes(config: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that compute a run in another way than before, each with the old and the new value."""
    before, after = _read_engine(config), _read_engine(now)
    shared = [key for key in after if before.get(key) is not None and after[key] is not None]
    return {key: (before[key], after[key]) for key in shared if before[key] != after[key]}


def _read_engine(config: dict[str, Any]) -> dict[str, Any]:
    """How a config says that the run is computed: as it began, with the changes of each resumption."""
    found = {**config.get("engine", {})}
    found |= {"torch": config.get("versions", {}).get("torch"), "cpu": config.get("machine", {}).get("cpu")}
    for changed in config.get("resumed", []):
        found |= changed
    if "native" in found.get("units", ""):
        found.setdefault("kernels", 1)  # which did not say so
    if found.get("threads") == "any":
        found["threads"] = None  # another number changes nothing
    return {key: value for key, value in found.items() if key != "step"}


def describe_changes(run: Run, changes: dict[str, tuple[Any, Any]]) -> str:
    words = ", ".join(f"{key} {after} instead of {before}" for key, (before, after) in changes.items())
    same = "BN sees the same images together, and all is the same" if "processes" in changes else "all is the same"
    return f"{run.path} goes on with {words}: {same} up to rounding."


def describe_unknown_processes(run: Run, world: int) -> str:
    return (
        f"{run.path} does not say how many processes began it; it goes on with {world}, and if it began with another "
        "number, BN sees other images together from here on."
    )


def count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}es"
