"""Callbacks: code of this package and of its users that runs during a training."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from resnets.atomic import write_error
from resnets.engine.threads import hold
from resnets.errors import UserError
from resnets.runs import Run
from resnets.training.plan import Plan

if TYPE_CHECKING:
    from resnets.training.session import Session


class Callback:
    """A subclass does something at these moments. `training` has `run`, `trainer`, `step` (steps done), `total` and
    `log`, which writes a line of metrics. An exception ends the training; the checkpoints stay.

    >>> class Show(resnets.Callback):
    ...     def on_epoch(self, training, means):
    ...         print(training.step, means)
    >>> run = resnets.train("preresnet20", data="cifar10", epochs=1, callbacks=[Show()])
    """

    everywhere = False  # whether it is called in every process; on_log, on_checkpoint and on_end are in the first only

    def on_start(self, training: Session, plan: Plan) -> None:
        """Before the first step of this process; `plan.done` steps were done before."""

    def on_step(self, training: Session) -> None:
        """After a step. Tests and the end of an epoch follow."""

    def on_test(self, training: Session, split: str, score: Mapping[str, Any]) -> None:
        """After the network was scored on `validation` or `test`."""

    def on_epoch(self, training: Session, means: Mapping[str, float]) -> None:
        """After the last step of an epoch and its tests; `means` are over the steps of the epoch."""

    def on_log(self, training: Session, line: Mapping[str, Any]) -> None:
        """After a line of metrics was written."""

    def on_checkpoint(self, training: Session, path: Path) -> None:
        """After a checkpoint was written."""

    def on_end(self, training: Session, result: Mapping[str, Any]) -> None:
        """After the run was finished, with what result.json holds."""

    def close(self) -> None:
        """However the training ends."""


class MetricsLog(Callback):
    """metrics.jsonl: means of steps and of epochs, and scores. The hash of its lines goes into checkpoints."""

    everywhere = True  # a loss that is not finite ends every process

    def __init__(self, run: Run, every: int, is_main: bool) -> None:
        self.run, self.every, self.is_main = run, every, is_main
        self.file: IO[str] | None = None
        self.lines, self.hash = 0, hashlib.sha256()

    def resume(self, lines: int) -> None:
        """Go on after the first `lines`, and cut those that follow the checkpoint."""
        self.run.cut_metrics(lines)
        self.lines, self.hash = lines, hashlib.sha256(self.run.read_metrics_start(lines))

    def state(self) -> dict[str, Any]:
        return {"lines": self.lines, "metrics": self.hash.hexdigest()}

    def on_start(self, training: Session, plan: Plan) -> None:
        self.file = self.run.open_metrics() if self.is_main else None
        self.logged, self.time = training.step, time.monotonic()

    def on_step(self, training: Session) -> None:
        trainer, last = training.trainer, training.step - 1
        if training.ends_epoch or training.step % self.every == 0:
            first = max(training.epoch_start, last - last % self.every)
            now = time.monotonic()
            speed = (training.step - self.logged) * trainer.recipe.batch / max(now - self.time, 1e-9)
            training.log(
                "train", **trainer.means(first, last), lr=trainer.schedule.lr(last),
                images_per_second=round(speed, 1), memory=_peak_memory(trainer.device),
            )  # fmt: skip
            self.logged, self.time = training.step, now
        if training.ends_epoch:
            training.log("epoch", **training.epoch_means())

    def on_test(self, training: Session, split: str, score: Mapping[str, Any]) -> None:
        training.log(split, **training.trainer.task.logged(score))

    def on_log(self, training: Session, line: Mapping[str, Any]) -> None:
        assert self.file is not None
        text = json.dumps(line) + "\n"
        with self._name_errors():
            self.file.write(text)
        self.hash.update(text.encode())
        self.lines += 1

    def flush(self) -> None:
        """Before a checkpoint: everything logged so far is on the disk."""
        assert self.file is not None
        with self._name_errors():
            self.file.flush()
            os.fsync(self.file.fileno())

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(self.run.metrics_path, error) from error

    def finish(self) -> None:
        if self.file is not None:
            with self._name_errors():
                self.file.close()

    def close(self) -> None:
        if self.file is not None:
            with suppress(OSError):  # of a full disk, which has been reported
                self.file.close()


def _peak_memory(device: torch.device) -> int | None:
    """Peak memory in MiB: of the device, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)


class SignalLog(Callback):
    """The signal along the units: before the first step, every `every` steps and after the last."""

    def __init__(self, every: int, everywhere: bool) -> None:
        self.every, self.everywhere = every, everywhere  # BN that is synchronised needs all processes

    def on_start(self, training: Session, plan: Plan) -> None:
        if training.step == 0:
            self._measure(training)

    def on_step(self, training: Session) -> None:
        if not training.ends_epoch:
            self._measure(training)

    def on_epoch(self, training: Session, means: Mapping[str, float]) -> None:
        self._measure(training)

    def _measure(self, training: Session) -> None:
        if training.step % self.every == 0 or training.step == training.total:
            trainer = training.trainer
            hold()
            training.log("signal", **trainer.task.measure_signal(trainer.net))


class TensorBoard(Callback):
    """The lines of metrics as TensorBoard event files in the run's folder."""

    def __init__(self, run: Run) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs the extra: pip install 'resnets[tensorboard]'.") from None
        folder = run.path / "tensorboard"
        if folder.is_symlink():
            raise UserError(f"{folder} is a symbolic link, which is not followed; remove it.")
        self.events = SummaryWriter(str(folder))

    def on_log(self, training: Session, line: Mapping[str, Any]) -> None:
        for name, value in line.items():
            numbers = {f"/{i}": v for i, v in enumerate(value, 1)} if isinstance(value, list) else {"": value}
            for which, number in numbers.items():  # a list has one for each size of the maps
                if name not in ("kind", "step") and isinstance(number, (int, float)):
                    self.events.add_scalar(f"{line['kind']}/{name}{which}", number, line["step"])
        self.events.flush()

    def close(self) -> None:
        self.events.close()
