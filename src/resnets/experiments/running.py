"""Run jobs, seed by seed. What is finished is skipped, what was killed goes on from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.data.bad_images import BadImages
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.errors import DivergedError, UserError
from resnets.experiments.images import load_images
from resnets.experiments.plan import Job
from resnets.experiments.protocols import test_run
from resnets.experiments.results import FailedRun, RowFile
from resnets.experiments.signals import measure_signal
from resnets.progress import Console, Silent
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
    row = RowFile(folder, job)
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
        return row.add(FailedRun(error.path, error.why))
    measured: dict[str, Any] = {"signal": measure_signal(run, images)}
    if isinstance(images, Folder):
        shown, bad = Silent() if quiet else Console(), BadImages(bad_images, warn)
        means = "plain" if engine == "plain" else "auto"  # engines of training are no engines of testing
        measured["tests"] = test_run(run, images, job, device, means, bad=bad, progress=shown)
    return row.add(run, **measured)


def measure_responses(job: Job, seed: int, run: Run, images: Images | Folder, folder: Path) -> Path:
    """Add the responses to a result that lacks them. The rest of the signal must come out as it was written then."""
    row = RowFile(folder, job)
    found, known = measure_signal(run, images), row.runs[seed]["signal"]
    for then, now in zip((*known["size"], *known["zeros"]), (*found["size"], *found["zeros"]), strict=True):
        if abs(now - then) > _CLOSE * max(abs(then), 1):
            raise UserError(
                f"{run.weights} is not what {row.path} was made from: its signal is {now:g} where {then:g} was "
                "written; move the run away."
            )
    return row.replace_signal(seed, {**known, "responses": found["responses"]})


class Sources:
    """The images of the last job, kept for the next."""

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.last: tuple[Any, Images | Folder] | None = None

    def __getitem__(self, job: Job) -> Images | Folder:
        if self.last is None or self.last[0] != job.source:
            self.last = job.source, load_images(job.source, self.folder)
        return self.last[1]
