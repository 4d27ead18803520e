"""From a command to a finished run: make or resume its folder, train, log, test once, keep the network."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from resnets.atomic import write_atomically, write_error
from resnets.data import open_data
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.engine import require_mode
from resnets.engine.allocator import keep_freed_memory
from resnets.errors import DivergedError, UserError
from resnets.recipe import Recipe, recipe_of, resolve_augment
from resnets.runs import Run, RunKey, provenance
from resnets.spec import Spec
from resnets.text import say
from resnets.training import checkpoint, distributed, resume
from resnets.training import memory_mode as mode
from resnets.training.batches import normalize_of
from resnets.training.checkpoint import Checkpoint
from resnets.training.init_weights import fitted, from_weights
from resnets.training.interrupts import stopping
from resnets.training.loop import NotFiniteError, Trainer
from resnets.training.progress import Progress, mute, progress, warn
from resnets.training.tensorboard import writer_of
from resnets.weights.networks import save_weights
from resnets.zoo import spec_of


def train(
    model: str | Spec,
    data: str | Images | Folder = "cifar10",
    recipe: str | Recipe = "cifar-paper",
    *,
    seed: int = 0,
    out: str | Path = "runs",
    curve: bool = False,
    test: bool = True,
    device: str = "auto",
    engine: str = "auto",
    memory: str = "auto",
    checkpoint_every: float = 60.0,
    log_every: int = 50,
    every: int = 0,
    tensorboard: bool = False,
    quiet: bool = False,
    data_dir: str | Path | None = None,
    network: dict[str, Any] | None = None,
    weights: str | Path | None = None,
    bad_images: str = "error",
    decoders: int | None = None,
    **changes: Any,
) -> Run:
    """Train a network by a recipe and return its run; the same call again resumes it, or returns it finished.

    `network` holds changes to the named network (`{"order": "bn_after_add"}`), `changes` are fields of the
    recipe (`lr=0.05`). The test set is used once, at the end, and after every epoch if `curve` asks for it; no
    choice is ever made by it. `checkpoint_every` is in seconds. `every` so many steps, and at both ends, the signal
    along the units is measured and logged. `engine` and `memory` say how it is computed here (see
    `resnets.engine.prepare`). None of these four is a part of the run.

    `weights` is a file, a finished run or a pretrained network of the package to begin with. Images in files are
    decoded by so many processes, `decoders`; of those that cannot be, `bad_images` says whether they end the run
    (`error`) or not (`skip`).
    """
    chosen = recipe_of(recipe, **changes)
    require_mode(engine, memory)
    workers, place = distributed.start(device)
    images = open_data(data, data_dir) if isinstance(data, str) else data
    if test and isinstance(images, Folder) and images.test is None and not chosen.validation:
        raise UserError(
            f"{images.name} has no folder val to test on: hold out training images by --validation N, or leave testing "
            "out by --no-test."
        )
    spec = _spec(model, network or {}, images)
    if weights is not None and not isinstance(model, Spec):
        spec = fitted(weights, spec, decided=network or {})
    begun = from_weights(weights, spec, images, seed) if weights is not None else None
    images = begun.data if begun else images
    chosen = resolve_augment(chosen, small=isinstance(images, Images) or spec.stem == "cifar")
    identity = RunKey(spec, images.name, images.digest, chosen, seed, begun.digest if begun else "")
    run = Run(Path(out) / identity.slug)
    tell = say if workers.is_main and not quiet else mute
    complain = warn if workers.is_main else mute
    normalize = normalize_of(images, chosen)
    finished = partial(resume.is_finished, run, identity, normalize, workers.world, tell)
    if workers.compute_on_main(finished):
        return run
    if engine != "plain":
        keep_freed_memory()
    with ExitStack() as held:
        workers.compute_on_main(lambda: held.enter_context(run.lock()) is None)
        if workers.compute_on_main(finished):  # another process has done it in the meantime
            return run
        began = workers.compute_on_main(lambda: run.config if run.exists else {})
        processes = resume.resolve_processes(run, began, workers.world, spec, chosen) if began else workers.world
        if memory == "auto" and engine == "auto":
            side = chosen.side or spec.input_size if isinstance(images, Folder) else max(images.train_images.shape[2:])
            first = began.get("engine", {}).get("memory")
            memory = mode.fitting(spec, chosen, side, place, workers, first=first, processes=processes, warn=complain)
        how = {"engine": engine, "memory": workers.broadcast("fast" if memory == "auto" else memory)}
        reading = {"bad_images": bad_images, "workers": decoders, "warn": complain}
        start = begun.net if begun else None
        trainer = Trainer(
            spec, images, chosen, seed,
            device=place, workers=workers, net=start, reading=reading, processes=processes, **how,
        )  # fmt: skip
        for notice in (*mode.fallbacks(trainer.prepared), *trainer.schedule.notices()):
            tell(notice)
        session = _Session(
            run, identity, trainer,
            curve=curve, test=test, log_every=log_every, checkpoint_every=checkpoint_every, every=every,
        )  # fmt: skip
        by = resume.describe_engine(trainer.prepared, **how, device=place, processes=workers.world)
        session.begin({"engine": by, "statistics": normalize.digest, **provenance()}, tell)
        if begun and not session.step:
            tell(f"{run.path} {begun.told}")
        if session.step:
            tell(f"resuming {run.path} at step {session.step:,} of {trainer.schedule.total:,}.")
        hidden = quiet or not workers.is_main
        with closing(trainer.feed), progress(trainer.schedule.total, session.step, hidden) as shown:
            session.go(shown, writer_of(run, tensorboard and workers.is_main))
    return run


def _spec(model: str | Spec, changes: dict[str, Any], images: Images | Folder) -> Spec:
    """The network for these images: as many classes and channels as they have, unless it was said."""
    if isinstance(model, Spec):
        if changes:
            raise UserError("a network given as a Spec takes no changes by `network`; change the spec.")
        spec = model
    else:
        spec = spec_of(model, **{"num_classes": images.num_classes, "in_channels": images.channels, **changes})
    if spec.num_classes < images.num_classes:
        raise UserError(f"{images.name} has {images.num_classes} classes and the network only {spec.num_classes}.")
    return spec


class _Session:
    """What one process does with a run."""

    def __init__(
        self,
        run: Run,
        identity: RunKey,
        trainer: Trainer,
        *,
        curve: bool,
        test: bool,
        log_every: int,
        checkpoint_every: float,
        every: int,
    ) -> None:
        self.run, self.identity, self.trainer, self.workers = run, identity, trainer, trainer.workers
        self.test = test and trainer.feed.count("test") > 0
        self.curve = curve and trainer.feed.count("test") > 0
        if not 0 <= checkpoint_every < math.inf:
            raise UserError(f"checkpoint_every must be a number of seconds of at least 0, not {checkpoint_every}.")
        self.log_every, self.checkpoint_every, self.every = log_every, checkpoint_every, every
        self.step = 0
        self.lines = 0  # of metrics
        self.written = hashlib.sha256()  # the hash of these lines
        self.scores: dict[str, tuple[int, dict[str, Any]]] = {}  # the newest of each split, with its step
        self.metrics: IO[str] | None = None

    # --- begin or resume ----------------------------------------------------------------------

    def begin(self, now: dict[str, Any], tell: Callable[[str], None]) -> None:
        """Take up the run where it stands; `now` is what its config says of how it is computed. Rank 0 reads."""
        saved = self.workers.compute_on_main(lambda: self._take_up(now, tell))
        if saved is not None:
            self.step, self.lines, self.scores = saved.step, saved.state["lines"], saved.state["scores"]
            self.trainer.load(saved.tensors)

    def _take_up(self, now: dict[str, Any], tell: Callable[[str], None]) -> Checkpoint | None:
        for left in self.run.path.rglob(".*.part"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)
        if not self.run.exists:  # the config comes last: a folder without one is not a run yet
            self.run.metrics_path.unlink(missing_ok=True)
            self.save()
            self._write_config({"run": self.identity.to_dict(), "steps": self.trainer.schedule.total, **now})
            return None
        saved = checkpoint.newest(self.run.checkpoints, warn, self._find_fault)
        self.run.cut_metrics(saved.state["lines"])
        self.written = hashlib.sha256(self.run.read_metrics_start(saved.state["lines"]))
        config = self.run.config
        changes = resume.find_changes(config, now)
        if resume.began_with(config) is None:
            (tell if self.workers.world == 1 else warn)(resume.describe_unknown_processes(self.run, self.workers.world))
        if changes:
            tell(resume.describe_changes(self.run, changes))
            goes_on = {"step": saved.step, **{key: after for key, (_, after) in changes.items()}}
            self._write_config({**config, "resumed": [*config.get("resumed", []), goes_on]})
        return saved

    def _find_fault(self, saved: Checkpoint) -> str | None:
        """Why the run cannot go on from a checkpoint that is whole."""
        if saved.state.get("run", self.identity.slug) != self.identity.slug or not self.trainer.fits(saved.tensors):
            return f"the checkpoint of step {saved.step:,} is of another run"
        return self.run.find_metrics_damage(saved.state["lines"], saved.state.get("metrics"))

    def _write_config(self, config: dict[str, Any]) -> None:
        write_atomically(self.run.config_path, json.dumps(config, indent=1).encode())

    def save(self) -> Path:
        state = {"lines": self.lines, "scores": self.scores}
        state |= {"metrics": self.written.hexdigest(), "run": self.identity.slug}
        return checkpoint.save(self.run.checkpoints, Checkpoint(self.step, self.trainer.state(), state))

    # --- train --------------------------------------------------------------------------------

    def go(self, shown: Progress, writer: Callable[[dict[str, Any]], None]) -> None:
        self.metrics = self.run.open_metrics() if self.workers.is_main else None
        self.writer, self.shown = writer, shown
        try:
            self._train()
            self._finish()
        except NotFiniteError as error:
            good = checkpoint.found(self.run.checkpoints)
            advice = (
                f"the last good checkpoint is {good[0] if good else 'missing'}; "
                "lower the learning rate, or lengthen the warm-up, and train anew."
            )
            raise DivergedError(self.run.path, str(error), advice) from None
        finally:
            if self.metrics is not None:
                with suppress(OSError):  # of a full disk, which has been told
                    self.metrics.close()

    def _train(self) -> None:
        stream, total = self.trainer.stream, self.trainer.schedule.total
        logged, began = self.step, time.monotonic()
        saved_at = began
        if self.every and self.step == 0:
            self._signal()
        with stopping() as asked:
            while self.step < total:
                step = self.step
                self.trainer.step(step)
                self.step += 1
                ends_epoch = self.step == total or stream.epoch(self.step) > stream.epoch(step)
                if ends_epoch or self.step % self.log_every == 0:
                    first = max(stream.first(stream.epoch(step)), step - step % self.log_every)
                    now = time.monotonic()
                    speed = (self.step - logged) * self.trainer.recipe.batch / max(now - began, 1e-9)
                    self._log(first, step, speed)
                    logged, began = self.step, now
                if ends_epoch:
                    self._epoch(step)
                if self.every and (self.step % self.every == 0 or self.step == total):
                    self._signal()
                self.shown.advance(self.step)
                stop = asked()
                if stop or time.monotonic() - saved_at >= self.checkpoint_every or self.step == total:
                    self._keep(step)
                    saved_at = time.monotonic()
                if stop:
                    sentence = f"stopped after step {self.step:,}; the same command goes on from there."
                    if self.workers.is_main:
                        say(sentence)
                    raise KeyboardInterrupt(sentence)

    def _log(self, first: int, last: int, speed: float) -> None:
        means = self.trainer.means(first, last)
        line = {
            "kind": "train", "step": last + 1, "epoch": self._epochs(last), "loss": means.loss, "error": means.error,
            "lr": self.trainer.schedule.lr(last), "images_per_second": round(speed, 1), "memory": _memory(self.trainer),
        }  # fmt: skip
        self._write(line)
        self.shown.tell(line)

    def _epoch(self, last: int) -> None:
        """The means of the epoch, and its errors where they were asked for."""
        stream = self.trainer.stream
        means = self.trainer.means(stream.first(stream.epoch(last)), last)
        base = {"step": last + 1, "epoch": self._epochs(last)}
        self._write({"kind": "epoch", **base, "loss": means.loss, "error": means.error})
        if self.trainer.recipe.validation:
            self._score("validation", base)
        if self.curve:
            self._score("test", base)

    def _signal(self) -> None:
        """How the signal travels after this step. Only BN that is synchronised needs all processes for it."""
        if self.workers.is_main or self.trainer.recipe.sync_bn:
            base = {"step": self.step, "epoch": self._epochs(self.step - 1)}
            self._write({"kind": "signal", **base, **self.trainer.signal()})

    def _score(self, split: str, base: dict[str, Any]) -> dict[str, Any]:
        score = self.trainer.score(split).to_dict()
        self.scores[split] = self.step, score
        self._write({"kind": split, **base, "loss": score["loss"], "error": score["error"]})
        self.shown.scored(split, score["error"])
        return score

    def _epochs(self, last: int) -> float:
        return round((last + 1) * self.trainer.recipe.batch / self.trainer.stream.n, 4)

    def _write(self, line: dict[str, Any]) -> None:
        if self.metrics is not None:
            text = json.dumps(line) + "\n"
            with self._metrics_written():
                self.metrics.write(text)
            self.written.update(text.encode())
            self.lines += 1
            self.writer(line)

    @contextmanager
    def _metrics_written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(self.run.metrics_path, error) from error

    def _keep(self, last: int) -> None:
        """A checkpoint, after everything logged before it is on the disk; never one with what is not finite."""
        self.trainer.check(last)
        if self.metrics is None:
            return
        with self._metrics_written():
            self.metrics.flush()
            os.fsync(self.metrics.fileno())
        self.save()

    def _finish(self) -> None:
        trainer = self.trainer
        trainer.finish()
        base = {"step": self.step, "epoch": self._epochs(self.step - 1)}
        scores = {}
        for split, wanted in (("validation", trainer.recipe.validation > 0), ("test", self.test)):
            step, known = self.scores.get(split, (0, {}))
            if wanted:
                changed = step < self.step or trainer.recipe.precise_bn
                scores[split] = self._score(split, base) if changed else known
        if self.metrics is None:
            return
        with self._metrics_written():
            self.metrics.close()
        seen: dict[str, Any] = {
            "normalize": trainer.recipe.normalize,
            "mean": trainer.data.mean,
            "std": trainer.data.std,
        }
        if trainer.recipe.normalize == "pixel" and trainer.recipe.validation:
            seen["held_out"] = trainer.recipe.validation
        metadata = {
            "classes": json.dumps(trainer.data.classes),
            "preprocessing": json.dumps({**seen, **trainer.feed.preprocessing}),
            "run": json.dumps(self.run.config["run"]),
            "scores": json.dumps(scores),
        }
        save_weights(trainer.tested, self.run.weights, metadata=metadata)  # type: ignore[arg-type]
        last = [line for line in self.run.metrics() if line["kind"] == "epoch"][-1]
        result = {"steps": self.step, "train": {k: last[k] for k in ("loss", "error")}, **scores}
        write_atomically(self.run.result_path, json.dumps(result, indent=1).encode())


def _memory(trainer: Trainer) -> int | None:
    """Peak memory in MiB: of the device, or of this process."""
    if trainer.device.type == "cuda":
        return torch.cuda.max_memory_allocated(trainer.device) >> 20
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)
