"""Estimate what a row takes before it runs: the time of its steps, of reading files and of testing, and its memory."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from resnets.data.batches import views_of
from resnets.data.decode_workers import Views, pieces, usual_workers
from resnets.data.files import Files
from resnets.data.random_crops import View
from resnets.engine.threads import count_threads
from resnets.experiments.plan import Job, RowEstimate
from resnets.experiments.protocols import count_crops
from resnets.training.estimate import Estimator

_READ = 32  # images in files
_TESTING = 1 / 3  # of a training step, for as many images


def estimate_row(row: RowEstimate, estimator: Estimator) -> RowEstimate:
    """Add the time and memory of the runs that are left; those that a row learns from or begins with take time too."""
    job, runs, device = row.job, len(row.seeds), estimator.device
    found = estimator.estimate(job.spec, job.recipe, job.side)
    memory, step = found.memory, found.step
    before = [estimate_row(RowEstimate(one, row.seeds, ()), estimator) for one in job.before]
    advice = f"--memory {memory.fastest}" if memory.fastest else "a machine with more memory"
    row = replace(row, fits=memory.fits, memory=memory.added, mode=memory.mode, advice=advice)
    if step is None:
        return row
    seconds = runs * _add_tests(job, device, step.wall) + sum(one.seconds for one in before)
    row = replace(row, seconds=seconds)
    if device.type != "cpu":
        return row
    busy = step.wall * count_threads() / step.work
    work = runs * _add_tests(job, device, step.work, cores=1) + sum(one.cpu_seconds or 0.0 for one in before)
    return replace(row, cpu_seconds=work, busy=busy)


def _add_tests(job: Job, device: torch.device, step: float, cores: int | None = None) -> float:
    """Seconds of a run, from those of a step: reading from files, on `cores` cores, and testing come on top."""
    tests = 1 + (job.steps * job.recipe.batch // job.source.images if job.budget.curve else 0)
    pixels, images = tests + sum(map(count_crops, job.tests)), job.source.test_images
    seconds = step * (job.steps * job.pixels + _TESTING * pixels * images / job.recipe.batch)
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
