"""Runs jobs, seed by seed. What is finished is skipped, what was killed goes on from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.data.images import Images
from resnets.errors import DivergedError
from resnets.reproduce import results
from resnets.reproduce.images import images_of
from resnets.reproduce.plan import Job
from resnets.reproduce.results import Failed
from resnets.reproduce.signals import signal
from resnets.runs import Run
from resnets.training.session import train

_LOGGED = 150  # lines of metrics in a run, about


def run_seed(job: Job, seed: int, images: Images, *, out: Path, folder: Path, **options: Any) -> Path:
    """One run of a job, and its results written. That a net diverges is a result too."""
    run: Run
    try:
        run = train(
            job.spec,
            images,
            job.recipe,
            seed=seed,
            out=out,
            curve=job.budget.curve,
            test=job.row.split == "test",
            log_every=-(-job.steps // _LOGGED),
            **options,
        )
    except DivergedError as error:
        run = Failed(error.path, error.why)
    return results.add(folder, job, run, None if isinstance(run, Failed) else signal(run, images))


class Sources:
    """The images of the last job, kept for the next."""

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.last: tuple[Any, Images] | None = None

    def __getitem__(self, job: Job) -> Images:
        if self.last is None or self.last[0] != job.source:
            self.last = job.source, images_of(job.source, self.folder)
        return self.last[1]
