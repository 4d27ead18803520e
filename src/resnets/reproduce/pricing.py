"""What a plan will cost, measured before it starts: a few steps of short nets with each row's units."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from resnets.data.images import Images
from resnets.data.synthetic import synthetic
from resnets.engine.available import available
from resnets.engine.device import choose
from resnets.engine.memory import fastest, forecast
from resnets.reproduce.images import smaller
from resnets.reproduce.plan import CIFAR_SIDE, Job
from resnets.spec import Spec
from resnets.training import mode
from resnets.training.loop import Trainer
from resnets.training.recipe import Recipe

_SHORT, _LONG = 1, 6  # units in each stage; the time of a step is a straight line in their number
_TIMED = 5  # steps
_TESTING = 1 / 3  # of a training step, for as many images


@dataclass(frozen=True)
class Price:
    seconds: float  # of one run
    memory: int  # bytes that it takes
    mode: str  # of memory
    fits: bool
    advice: str  # what would make it fit


def price(job: Job, device: str = "auto", memory: str = "auto", engine: str = "auto") -> Price:
    """Of one run of a job, in a memory mode or in the fastest that fits."""
    mode.check(engine, memory)
    if engine == "plain":
        memory = "fast"
    place = choose(device)
    spec, batch = alike(job.spec), job.recipe.micro_batch or job.recipe.batch
    room = available(place)
    best = fastest(spec, batch, job.side, room, place.type)
    chosen = best if memory == "auto" else forecast(spec, batch, job.side, memory, device=place.type)
    step = step_seconds(spec, job.recipe, job.side, device=str(place), memory=chosen.mode, engine=engine)
    tests = 1 + (job.steps * job.recipe.batch // job.source.images if job.budget.curve else 0)
    seconds = step * (job.steps + _TESTING * tests * job.source.test_images / job.recipe.batch)
    advice = f"--memory {best.mode}" if best.fits(room) else "a machine with more memory"
    return Price(seconds, chosen.added, chosen.mode, chosen.fits(room), advice)


def alike(spec: Spec) -> Spec:
    """One spec for all that cost the same, whatever they are called, with whatever numbers their shortcut begins."""
    return dataclasses.replace(spec, name="", shortcut=type(spec.shortcut)(), num_classes=10)


def step_seconds(spec: Spec, recipe: Recipe, side: int, **how: str) -> float:
    """Seconds of a training step, on a straight line through the work of two short nets of the same units.

    How busy the machine is changes from one measurement to the next and would tilt the line, so it enters as a factor.
    """
    kind = dataclasses.replace(
        recipe, name="", length="9it", warmup="0it", milestones="", validation=0, micro_batch=0, sizes=""
    )
    if max(spec.blocks) <= _LONG:
        return _measured(spec, kind, side, **how).wall
    short, long = (dataclasses.replace(spec, blocks=(n,) * len(spec.blocks)) for n in (_SHORT, _LONG))
    few, many = (_measured(net, kind, side, **how) for net in (short, long))
    a_unit = max(0.0, many.work - few.work) / (sum(long.blocks) - sum(short.blocks))
    work = few.work + a_unit * (sum(spec.blocks) - sum(short.blocks))
    return work * (few.wall + many.wall) / (few.work + many.work)


class Step(NamedTuple):
    """Seconds of a training step."""

    work: float  # of the processor, which other processes hardly change; on other devices the same as `wall`
    wall: float


@lru_cache
def _measured(spec: Spec, recipe: Recipe, side: int, **how: str) -> Step:
    """The time depends on shapes alone, so any images do, and rows of one kind are measured once."""
    trainer = Trainer(spec, _images(side), recipe, 0, **how)  # type: ignore[arg-type]
    trainer.step(0)  # which makes room and does not count
    trainer.record.cpu()  # waits until it is done
    began, worked = time.perf_counter(), time.process_time()
    for step in range(1, 1 + _TIMED):
        trainer.step(step)
    trainer.record.cpu()
    wall, work = (time.perf_counter() - began) / _TIMED, (time.process_time() - worked) / _TIMED
    return Step(work or wall if trainer.device.type == "cpu" else wall, wall)


@lru_cache
def _images(side: int) -> Images:
    images = synthetic(256)
    return images if side == CIFAR_SIDE else smaller(images, side)
