"""Runs jobs, seed by seed. What is finished is skipped, what was killed goes on from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.data.bad_images import BadImages
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.data.progress import Console, Silent
from resnets.errors import DivergedError, UserError
from resnets.experiments import results
from resnets.experiments.images import images_of
from resnets.experiments.plan import Job
from resnets.experiments.protocols import tested
from resnets.experiments.results import Failed
from resnets.experiments.signals import signal
from resnets.runs import Run
from resnets.training.progress import warn
from resnets.training.session import train

_LOGGED = 150  # lines of metrics in a run, about
_CLOSE = 1e-3  # what other kernels and threads may change of a signal


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
    bad_images: str = "error",
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
            bad_images=bad_images,
            **options,
        )
    except DivergedError as error:
        return results.add(folder, job, Failed(error.path, error.why))
    measured: dict[str, Any] = {"signal": signal(run, images)}
    if isinstance(images, Folder):
        shown, bad = Silent() if quiet else Console(), BadImages(bad_images, warn)
        means = "plain" if engine == "plain" else "auto"  # engines of training are no engines of testing
        measured["tests"] = tested(run, images, job, device, means, bad=bad, progress=shown)
    return results.add(folder, job, run, **measured)


def measure_later(job: Job, seed: int, run: Run, images: Images | Folder, folder: Path) -> Path:
    """Add the responses to a result that lacks them. The rest of the signal must come out as it was written then."""
    found, known = signal(run, images), results.entry_of(folder, job, seed)["signal"]
    for then, now in zip((*known["size"], *known["zeros"]), (*found["size"], *found["zeros"]), strict=True):
        if abs(now - then) > _CLOSE * max(abs(then), 1):
            raise UserError(
                f"{run.weights} is not what {results.path_of(folder, job)} was made from: the signal is another "
                f"({now:g} where {then:g} was written); move the run away."
            )
    return results.add_later(folder, job, seed, {**known, "responses": found["responses"]})


class Sources:
    """The images of the last job, kept for the next."""

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.last: tuple[Any, Images | Folder] | None = None

    def __getitem__(self, job: Job) -> Images | Folder:
        if self.last is None or self.last[0] != job.source:
            self.last = job.source, images_of(job.source, self.folder)
        return self.last[1]
