"""Estimate what a plan costs before it starts: time a few steps of short nets with each row's units.

Two times are given: by the clock, which depends on what else the machine does now, and CPU time, which hardly does.
"""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from resnets.data.batches import views_of
from resnets.data.decode_workers import Views, pieces, usual_workers
from resnets.data.files import Files
from resnets.data.images import Images
from resnets.data.random_crops import View
from resnets.data.synthetic import synthetic
from resnets.engine.device import choose
from resnets.engine.memory_estimate import fastest, forecast
from resnets.engine.system_memory import available
from resnets.experiments.images import shrink
from resnets.experiments.plan import CIFAR_SIDE, Job
from resnets.experiments.protocols import count_crops
from resnets.recipe import Recipe
from resnets.spec import Spec
from resnets.training.classification import Classification
from resnets.training.loop import Trainer

_SHORT, _LONG = 1, 6  # units in each stage; the time of a step is a straight line in their number
_TIMED = 5  # steps
_PIXELS = 2**18  # in a batch of these; of larger images fewer, as a step is a straight line in their number too
_READ = 32  # images in files
_TESTING = 1 / 3  # of a training step, for as many images


@dataclass(frozen=True)
class Price:
    seconds: float  # of one run, by the clock; not measured where it does not fit
    cpu_seconds: float | None  # of all threads; None on other devices
    memory: int  # bytes that it takes
    mode: str  # of memory
    fits: bool
    advice: str  # what would make it fit
    busy: float = 1.0  # the time of a step by the clock, over its CPU time a thread: above 1 other programs compute too


def price(job: Job, device: str = "auto", memory: str = "auto", engine: str = "auto") -> Price:
    """Of one run of a job, in a memory mode or in the fastest that fits."""
    if engine != "auto":
        memory = "fast"
    place = choose(device)
    spec, batch = normalize_spec(job.spec), job.recipe.micro_batch or job.recipe.batch
    room = available(place)
    best = fastest(spec, batch, job.side, room, place.type)
    chosen = best if memory == "auto" else forecast(spec, batch, job.side, memory, device=place.type)
    advice = f"--memory {best.mode}" if best.fits(room) else "a machine with more memory"
    seconds, cpu_seconds, busy = 0.0, None, 1.0
    if chosen.fits(room):
        step = time_step(spec, job.recipe, job.side, device=str(place), memory=chosen.mode, engine=engine)
        seconds = _add_tests(job, place, step.wall)
        if place.type == "cpu":
            threads = torch.get_num_threads()
            cpu_seconds, busy = _add_tests(job, place, step.work, cores=1), step.wall * threads / step.work
    return Price(seconds, cpu_seconds, chosen.added, chosen.mode, chosen.fits(room), advice, busy)


def _add_tests(job: Job, device: torch.device, step: float, cores: int | None = None) -> float:
    """Seconds of a run, from those of a step: reading from files, by so many cores, and testing come on top."""
    tests = 1 + (job.steps * job.recipe.batch // job.source.images if job.budget.curve else 0)
    pixels, images = tests + sum(map(count_crops, job.tests)), job.source.test_images
    seconds = step * (job.steps + _TESTING * pixels * images / job.recipe.batch)
    if (folder := job.source.folder) is None:
        return seconds
    training, middle = views_of(job.recipe, job.side)
    read = time_reading(folder.train, training) * job.steps * job.recipe.batch
    read += time_reading(folder.test or folder.train, middle) * (tests + len(job.tests)) * images
    if device.type == "cpu":  # where it takes the cores from the training
        return seconds + read / (cores or os.cpu_count() or 1)
    return max(seconds, read / usual_workers(device))


@lru_cache
def time_reading(files: Files, view: View) -> float:
    """Seconds of one core to read an image, of a few all over the files."""
    index = np.arange(0, len(files), -(-len(files) // _READ))
    views, began = Views(view, 0), time.process_time()
    for wanted in pieces(files, [(0, index)]):
        views[wanted]
    return (time.process_time() - began) / len(index)


def normalize_spec(spec: Spec) -> Spec:
    """One spec for all that cost the same, whatever they are called, with whatever numbers their shortcut begins."""
    return dataclasses.replace(spec, name="", shortcut=type(spec.shortcut)(), num_classes=10)


def time_step(spec: Spec, recipe: Recipe, side: int, **how: str) -> Step:
    """Seconds of a training step, on a straight line through the work of two short nets of the same units.

    How busy the machine is changes from one measurement to the next and would tilt the line, so it enters as a factor.
    """
    batch = min(recipe.batch, max(1, _PIXELS // side**2))
    kind = dataclasses.replace(
        recipe, name="", length="9it", batch=batch, micro_batch=0, warmup="0it", milestones="", validation=0, sizes="",
        augment="pad", side=0, jitter=0.0, lighting=0.0,
    )  # fmt: skip
    larger = recipe.batch / batch
    if max(spec.blocks) <= _LONG:
        one = _time_steps(spec, kind, side, **how)
        return Step(one.work * larger, one.wall * larger)
    short, long = (dataclasses.replace(spec, blocks=(n,) * len(spec.blocks)) for n in (_SHORT, _LONG))
    few, many = (_time_steps(net, kind, side, **how) for net in (short, long))
    a_unit = max(0.0, many.work - few.work) / (sum(long.blocks) - sum(short.blocks))
    work = few.work + a_unit * (sum(spec.blocks) - sum(short.blocks))
    return Step(work * larger, work * larger * (few.wall + many.wall) / (few.work + many.work))


class Step(NamedTuple):
    """Seconds of a training step."""

    work: float  # of the processor, which other processes hardly change; on other devices the same as `wall`
    wall: float


@lru_cache
def _time_steps(spec: Spec, recipe: Recipe, side: int, **how: str) -> Step:
    """The time depends on shapes alone, so any images do, and rows of one kind are measured once."""
    trainer = Trainer(Classification(spec, _images(side)), recipe, 0, **how)  # type: ignore[arg-type]
    trainer.step(0)  # which makes room and does not count
    trainer.record.cpu()  # waits until it is done
    began, worked = time.perf_counter(), time.process_time()  # which counts all threads
    for step in range(1, 1 + _TIMED):
        trainer.step(step)
    trainer.record.cpu()
    wall, work = (time.perf_counter() - began) / _TIMED, (time.process_time() - worked) / _TIMED
    return Step(work or wall if trainer.device.type == "cpu" else wall, wall)


@lru_cache
def _images(side: int) -> Images:
    images = synthetic(256)
    return images if side == CIFAR_SIDE else shrink(images, side)
