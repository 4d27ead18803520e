"""Estimate what a training will take on this machine: its memory, and the time of a step.

Two times are given: by the clock, which depends on what else the machine does now, and CPU time, which hardly does.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from resnets.chain import Chain, NetworkSpec
from resnets.data.resized import load_resized
from resnets.engine import require_mode
from resnets.engine.device import choose
from resnets.engine.memory_choice import MemoryChoice, choose_memory
from resnets.recipe import Recipe
from resnets.training.classification import Classification
from resnets.training.loop import Trainer

_SHORT, _LONG = 1, 6  # units in each stage; the time of a step is a straight line in their number
_TIMED = 5  # steps
_PIXELS = 2**18  # in a batch of these; of larger images fewer, as a step is a straight line in their number too


class StepTime(NamedTuple):
    """Seconds of a training step."""

    work: float  # of the processor, which other processes hardly change; on other devices the same as `wall`
    wall: float


@dataclass(frozen=True)
class TrainingEstimate:
    memory: MemoryChoice
    step: StepTime | None  # not measured where the memory does not fit


class Estimator:
    """Estimates trainings on one device, with one engine."""

    def __init__(self, device: str = "auto", memory: str = "auto", engine: str = "auto") -> None:
        require_mode(engine, memory)
        self.device, self.engine = choose(device), engine
        self.memory = memory if engine == "auto" else "fast"

    def estimate(self, spec: NetworkSpec, recipe: Recipe, side: int) -> TrainingEstimate:
        """Time a few steps of short nets with the same units, in a memory mode or in the fastest that fits."""
        spec, wanted = normalize_spec(spec), "auto" if isinstance(spec, Chain) else self.memory
        memory = choose_memory(spec, recipe.micro_batch or recipe.batch, side, self.device, wanted)
        how = {"device": str(self.device), "memory": memory.mode, "engine": self.engine}
        return TrainingEstimate(memory, time_step(spec, recipe, side, **how) if memory.fits else None)


def normalize_spec(spec: NetworkSpec) -> NetworkSpec:
    """One spec for all that cost the same: names and the numbers of a shortcut do not matter."""
    if isinstance(spec, Chain):
        return dataclasses.replace(spec, name="", num_classes=10)
    return dataclasses.replace(spec, name="", shortcut=type(spec.shortcut)(), num_classes=10)


def time_step(spec: NetworkSpec, recipe: Recipe, side: int, **how: str) -> StepTime:
    """Extrapolate a training step on a straight line through the work of two short nets of the same units.

    How busy the machine is changes from one measurement to the next and would tilt the line, so it enters as a factor.
    """
    batch = min(recipe.batch, max(1, _PIXELS // side**2))
    kind = dataclasses.replace(
        recipe, name="", length="9it", batch=batch, micro_batch=0, warmup="0it", milestones="", validation=0, sizes="",
        augment="pad", side=0, jitter=0.0, lighting=0.0, normalize="channel", init="", hint="", distill="",
    )  # fmt: skip
    larger = recipe.batch / batch
    if isinstance(spec, Chain) or max(spec.blocks) <= _LONG:
        one = _time_steps(spec, kind, side, **how)
        return StepTime(one.work * larger, one.wall * larger)
    short, long = (dataclasses.replace(spec, blocks=(n,) * len(spec.blocks)) for n in (_SHORT, _LONG))
    few, many = (_time_steps(net, kind, side, **how) for net in (short, long))
    a_unit = max(0.0, many.work - few.work) / (sum(long.blocks) - sum(short.blocks))
    work = few.work + a_unit * (sum(spec.blocks) - sum(short.blocks))
    return StepTime(work * larger, work * larger * (few.wall + many.wall) / (few.work + many.work))


@lru_cache
def _time_steps(spec: NetworkSpec, recipe: Recipe, side: int, **how: str) -> StepTime:
    """The time depends on shapes alone, so any images do, and networks of one kind are measured once."""
    images = load_resized("synthetic:256", side)
    trainer = Trainer(Classification(spec, images), recipe, 0, **how)  # type: ignore[arg-type]
    trainer.step(0)  # allocates memory and does not count
    trainer.record.cpu()  # waits until it is done
    began, worked = time.perf_counter(), time.process_time()  # which counts all threads
    for step in range(1, 1 + _TIMED):
        trainer.step(step)
    trainer.record.cpu()
    wall, work = (time.perf_counter() - began) / _TIMED, (time.process_time() - worked) / _TIMED
    return StepTime(work or wall if trainer.device.type == "cpu" else wall, wall)
