"""Run rows, seed by seed. `train` skips what is finished, and resumes what was killed from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.analysis.signal import measure_signal
from resnets.data.bad_images import BadImages
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.data.resized import load_resized
from resnets.data.sample import sample_training_images
from resnets.errors import DivergedError, UserError
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.plan import Job, Source
from resnets.experiments.protocols import test_run
from resnets.experiments.results import FailedRun, RowFile
from resnets.nn import require_units
from resnets.progress import Console, Silent
from resnets.runs import Run
from resnets.spec import Spec
from resnets.training.progress import warn
from resnets.training.session import train
from resnets.weights.models import open_model

_LOGGED = 150  # lines of metrics in a run, about
_MEASURED = 32  # images to measure the signal on
_CLOSE = 1e-3  # what other kernels and threads may change of a signal


class Runner:
    """Runs jobs as the options say, with more options of `train`. It keeps the images of the last job for the next."""

    def __init__(self, options: ReproduceOptions, *, quiet: bool = False, **training: Any) -> None:
        self.options, self.quiet, self.training = options, quiet, training
        self.folder = Path(options.results)
        self.last: tuple[Source, Images | Folder] | None = None

    def load(self, source: Source) -> Images | Folder:
        """Images at a source's side, so that the net is tested on what it was trained on; a folder's are scaled when
        they are read."""
        if self.last is None or self.last[0] != source:
            found = source.folder or load_resized(source.name, source.side, source.tested, self.options.data_dir)
            self.last = source, found
        return self.last[1]

    def run(self, job: Job, seed: int) -> Path:
        """Train, test as the tables ask for, and write the results. That a net diverges is a result too."""
        row, images, options = RowFile(self.folder, job), self.load(job.source), self.options
        before = {}
        if job.teacher is not None:
            before["teacher"] = str(self._train(job.teacher, seed).path)
        if job.begins is not None:
            before["weights"] = str(self._train(job.begins, seed, **before).path)
        try:
            run = self._train(job, seed, **before)
        except DivergedError as error:
            return row.add(FailedRun(error.path, error.why))
        measured: dict[str, Any] = {}
        if isinstance(job.spec, Spec):  # others have no units whose signal could be measured
            measured["signal"] = self._measure_signal(job, run)
        if isinstance(images, Folder):
            shown, bad = Silent() if self.quiet else Console(), BadImages(options.bad_images, warn)
            engine = "plain" if options.engine == "plain" else "auto"  # engines of training cannot test
            measured["tests"] = test_run(run, images, job, options.device, engine, bad=bad, progress=shown)
        return row.add(run, **measured)

    def _train(self, job: Job, seed: int, **before: Any) -> Run:
        """Train a job, or find it finished; `before` names the runs that it learns from or begins with."""
        options, residual = self.options, isinstance(job.spec, Spec)
        return train(
            job.spec,
            self.load(job.source),
            job.recipe,
            seed=seed,
            out=options.out,
            curve=job.budget.curve and not job.recipe.hint,
            test=job.row.split == "test",
            log_every=-(-job.steps // _LOGGED),
            device=options.device,
            engine=options.engine if residual else "auto",
            memory=options.memory if residual else "auto",
            threads=options.threads,
            quiet=self.quiet,
            bad_images=options.bad_images,
            **before,
            **self.training,
        )

    def _measure_signal(self, job: Job, run: Run) -> dict[str, list[float]]:
        x = sample_training_images(self.load(job.source), job.recipe, job.side, _MEASURED)
        return measure_signal(require_units(open_model(run), "the signal is measured along"), x)

    def measure_responses(self, job: Job, seed: int, run: Run) -> Path:
        """Add the responses to a result that lacks them. The rest of the signal must be as it was written then."""
        row = RowFile(self.folder, job)
        found, known = self._measure_signal(job, run), row.runs[seed]["signal"]
        for then, now in zip((*known["size"], *known["zeros"]), (*found["size"], *found["zeros"]), strict=True):
            if abs(now - then) > _CLOSE * max(abs(then), 1):
                raise UserError(
                    f"{run.weights} is not what {row.path} was made from: its signal is {now:g} where {then:g} was "
                    "written; move the run away."
                )
        return row.replace_signal(seed, {**known, "responses": found["responses"]})
