"""Runs jobs, seed by seed. What is finished is skipped, what was killed goes on from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.data.progress import Console, Silent
from resnets.errors import DivergedError
from resnets.reproduce import results
from resnets.reproduce.images import images_of
from resnets.reproduce.plan import Job
from resnets.reproduce.protocols import tested
from resnets.reproduce.results import Failed
from resnets.reproduce.signals import signal
from resnets.training.session import train

_LOGGED = 150  # lines of metrics in a run, about


def run_seed(
    job: Job,
    seed: int,
    images: Images | Folder,
    *,
    out: Path,
    folder: Path,
    device: str = "auto",
    engine: str = "auto",
    quiet: bool = False,
    **options: Any,
) -> Path:
    """One run of a job, tested as the tables ask for, and its results written. That a net diverges is a result too."""
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
            device=device,
            engine=engine,
            quiet=quiet,
            **options,
        )
    except DivergedError as error:
        return results.add(folder, job, Failed(error.path, error.why))
    measured: dict[str, Any] = {"signal": signal(run, images)}
    if isinstance(images, Folder):
        shown = Silent() if quiet else Console()
        measured["tests"] = tested(run, images, job.tests, job.side, device=device, engine=engine, progress=shown)
    return results.add(folder, job, run, **measured)


class Sources:
    """The images of the last job, kept for the next."""

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.last: tuple[Any, Images | Folder] | None = None

    def __getitem__(self, job: Job) -> Images | Folder:
        if self.last is None or self.last[0] != job.source:
            self.last = job.source, images_of(job.source, self.folder)
        return self.last[1]
