"""`train`: resolve the job, open or resume its run, train with callbacks, test, save the network."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from resnets.atomic import write_atomically
from resnets.chain import Chain, NetworkSpec
from resnets.detector_spec import DetectorOptions, DetectorSpec
from resnets.engine.device import start_engine
from resnets.engine.memory_estimate import choose_mode
from resnets.engine.threads import Threads
from resnets.errors import DivergedError, UserError, describe_out_of_memory, is_out_of_memory, shown
from resnets.options import describe_options, split_keywords
from resnets.recipe import Recipe
from resnets.runs import Run, RunKey, provenance
from resnets.spec import Spec
from resnets.text import say
from resnets.training import checkpoint, distributed, resume
from resnets.training.callbacks import Callback, MetricsLog, SignalLog, TensorBoard
from resnets.training.checkpoint import Checkpoint
from resnets.training.continuation import continue_shorter, find_same_data
from resnets.training.distributed import Workers
from resnets.training.interrupts import catch_interrupts
from resnets.training.job import Job, resolve_job
from resnets.training.loop import NotFiniteError, Trainer
from resnets.training.options import TrainOptions
from resnets.training.plan import Plan
from resnets.training.progress import Progress, mute, warn
from resnets.training.schedule import Schedule
from resnets.training.task import Task
from resnets.weights.files import read
from resnets.weights.models import load
from resnets.zoo import NetworkOptions


class TrainedRun(Run):
    """A run as `train` returns it, with its network."""

    def __init__(self, path: Path, module: nn.Module | None = None) -> None:
        super().__init__(path)
        self.module = module

    @property
    def model(self) -> nn.Module:
        """The trained network, in eval mode."""
        if self.result is None:
            raise UserError(f"{self.path} is not finished, so it has no trained network yet.")
        if isinstance(self.identity.network, Spec | Chain | DetectorSpec):
            return load(self.path).eval()
        if self.module is None:
            raise UserError(
                f"{self.weights} holds the state dict of a {self.identity.network.name}, a module of yours: build it, "
                "and load the file into it or call train with it again."
            )
        net = copy.deepcopy(self.module)
        net.load_state_dict(read(self.weights).tensors)
        return net.eval()


def train(
    model: str | NetworkSpec | nn.Module | Task,
    data: Any = None,
    recipe: str | Recipe | None = None,
    *,
    options: TrainOptions | None = None,
    callbacks: Sequence[Callback] = (),
    network: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> TrainedRun:
    """Train a network and return its run; the same call again resumes the run, or returns it if it is finished.

    `model` is a name, a `Spec`, a `Chain`, any `nn.Module` (a copy of it is trained) or a `Task`. `data` is a name, a
    folder, or a pair of torch data sets of (tensor, label); a detector (`faster_rcnn_resnet50`) needs pictures with
    boxes. `keywords` are fields of `TrainOptions` (`seed=1`), of `Recipe` (`lr=0.05`, `epochs=3`) and of the network
    (`order="bn_after_add"`); `network={...}` holds fields of the network too. The test set is used once, at the end,
    and after every epoch if `curve` asks for it; nothing is chosen by it.

    >>> run = resnets.train("preresnet20", data="cifar10", recipe="cifar-quick", seed=1)
    >>> run.result["test"]["error"], run.model, run.curves
    """
    if isinstance(data, str | Path):
        keywords["data"], data = str(data), None
    if isinstance(recipe, str):
        keywords["recipe"], recipe = recipe, None
    given, changes, fields, detector = split_keywords(keywords, TrainOptions, Recipe, NetworkOptions, DetectorOptions)
    chosen = TrainOptions(**given) if options is None else dataclasses.replace(options, **given)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise UserError(f"a callback must be an instance of a subclass of Callback, not {shown(callback)}.")
    workers, device = distributed.start(start_engine(chosen.device, chosen.engine, chosen.memory))
    complain = warn if workers.is_main else mute
    try:
        job = resolve_job(
            model,
            data,
            recipe,
            chosen,
            network={**(network or {}), **fields, **detector},
            changes=changes,
            warn=complain,
        )
        with Threads(chosen.threads):
            return train_job(job, workers, device, tuple(callbacks))
    except (MemoryError, RuntimeError, OSError) as error:
        if is_out_of_memory(error):
            raise UserError(describe_out_of_memory(error)) from error
        if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker"):
            raise UserError(
                "a process that decodes images was killed, perhaps because memory ran out: give fewer --decoders, a "
                "smaller --batch or --micro-batch, or --memory min; the same command resumes the run."
            ) from error
        raise


train.__doc__ = f"{inspect.cleandoc(train.__doc__ or '')}\n\n{describe_options([TrainOptions, Recipe])}"


def train_job(job: Job, workers: Workers, device: torch.device, callbacks: tuple[Callback, ...]) -> TrainedRun:
    """Open the run of a job and train it, unless it is finished."""
    options, task = job.options, job.task
    tell = say if workers.is_main and not options.quiet else mute
    key = RunKey(task.network, task.data, task.digest, job.recipe, options.seed, task.weights, task.kind, task.teacher)
    if job.folder is not None:
        key = workers.compute_on_main(partial(find_same_data, Path(options.out), key, job.folder))
    run = TrainedRun(Path(options.out) / key.slug, job.module)
    statistics = task.statistics(job.recipe)
    is_finished = partial(resume.is_finished, run, key, statistics, workers.world, tell)
    if workers.compute_on_main(is_finished):
        return run
    schedule = Schedule(job.recipe, task.count_examples(job.recipe))
    with ExitStack() as held:
        workers.compute_on_main(lambda: held.enter_context(run.lock()) is None)
        if workers.compute_on_main(is_finished):  # another process has done it in the meantime
            return run
        adopt = partial(continue_shorter, run, key, schedule, options, statistics=statistics, tell=tell)
        workers.compute_on_main(adopt)
        began = workers.compute_on_main(lambda: run.config if run.exists else {})
        for sentence in task.list_notices(job.recipe):
            tell(sentence)
        trainer, engine = _build_trainer(job, run, began, workers, device)
        held.callback(task.close)
        now = {"engine": engine, **({"statistics": statistics} if statistics else {}), **provenance()}
        session = Session(run, key, trainer, job, callbacks)
        session.begin(now, tell)
        session.go()
    return run


def _build_trainer(
    job: Job, run: Run, began: dict[str, Any], workers: Workers, device: torch.device
) -> tuple[Trainer, dict[str, Any]]:
    """The trainer, in the memory mode that fits, and what config.json says about how it computes."""
    options, recipe, spec = job.options, job.recipe, job.spec
    world = workers.world
    processes = resume.resolve_processes(run, began, world, spec, recipe) if began else world
    memory = options.memory
    side = max([side for side, _ in recipe.size_steps], default=job.task.image_side(recipe))
    if memory == "auto" and options.engine == "auto" and isinstance(spec, Spec) and side:
        memory = choose_mode(
            spec,
            recipe.micro_batch or -(-recipe.batch // processes),
            side,
            device,
            first=began.get("engine", {}).get("memory"),
            processes=int(os.environ.get("LOCAL_WORLD_SIZE", world)),
            warn=warn if workers.is_main else mute,
        )
    elif memory == "auto":
        chosen = began.get("engine", {}).get("memory") or job.task.choose_memory(recipe, device)
        memory = chosen or memory
    how = {"engine": options.engine, "memory": workers.broadcast("fast" if memory == "auto" else memory)}
    trainer = Trainer(job.task, recipe, options.seed, device=device, workers=workers, processes=processes, **how)
    return trainer, resume.describe_engine(trainer.prepared, **how, device=device, processes=world)


class Session:
    """One process's part of a run: what callbacks see as `training`."""

    def __init__(self, run: Run, key: RunKey, trainer: Trainer, job: Job, callbacks: tuple[Callback, ...]) -> None:
        self.run, self.key, self.trainer, self.workers, self.job = run, key, trainer, trainer.workers, job
        self.options, self.total = job.options, trainer.schedule.total
        self.step = 0
        self.scores: dict[str, tuple[int, dict[str, Any]]] = {}  # the newest of each split, with its step
        is_main, options = self.workers.is_main, job.options
        self.metrics = MetricsLog(run, options.log_every, is_main)
        found: list[Callback] = [self.metrics]
        if options.signal_every:
            found.append(SignalLog(options.signal_every, everywhere=job.recipe.sync_bn))
        if options.tensorboard and is_main:
            found.append(TensorBoard(run))
        if not options.quiet:
            found.append(Progress())
        self.callbacks = [callback for callback in (*found, *callbacks) if is_main or callback.everywhere]

    # --- begin or resume ----------------------------------------------------------------------

    def begin(self, now: dict[str, Any], tell: Callable[[str], None]) -> None:
        """Open the run or resume it; `now` says how this process computes it. Rank 0 reads the files."""
        saved = self.workers.compute_on_main(lambda: self._resume(now, tell) if self.run.exists else self._open(now))
        if saved is not None:
            self.step, self.scores = saved.step, saved.state["scores"]
            self.trainer.load(saved.tensors)
        if self.step:
            tell(f"resuming {self.run.path} at step {self.step:,} of {self.total:,}.")
        elif self.job.begins:
            tell(f"{self.run.path} {self.job.begins}")

    def _open(self, now: dict[str, Any]) -> None:
        self._remove_parts()
        self.run.metrics_path.unlink(missing_ok=True)
        self.save()
        asked = {"options": self.options.to_dict(), **self._data_path()}
        # The config comes last: a folder without one is not a run yet.
        self._write_config({"run": self.key.to_dict(), "steps": self.total, **asked, **now})

    def _data_path(self) -> dict[str, str]:
        return {"data_path": str(self.job.folder)} if self.job.folder is not None else {}

    def _resume(self, now: dict[str, Any], tell: Callable[[str], None]) -> Checkpoint:
        self._remove_parts()
        saved = checkpoint.newest(self.run.checkpoints, warn, self._find_fault)
        self.metrics.resume(saved.state["lines"])
        config = self.run.config
        changes = resume.find_changes(config, now)
        if resume.read_processes(config) is None:
            (tell if self.workers.world == 1 else warn)(resume.describe_unknown_processes(self.run, self.workers.world))
        updated = {**config, **self._data_path()}
        if changes:
            tell(resume.describe_changes(self.run, changes))
            resumed = {"step": saved.step, **{key: after for key, (_, after) in changes.items()}}
            updated["resumed"] = [*config.get("resumed", []), resumed]
        if updated != config:
            self._write_config(updated)
        return saved

    def _remove_parts(self) -> None:
        for left in self.run.path.rglob(".*.part"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)

    def _find_fault(self, saved: Checkpoint) -> str | None:
        """Why the run cannot go on from a checkpoint that is whole."""
        if saved.state.get("run", self.key.slug) != self.key.slug or not self.trainer.fits(saved.tensors):
            return f"the checkpoint of step {saved.step:,} is of another run"
        return self.run.find_metrics_damage(saved.state["lines"], saved.state.get("metrics"))

    def _write_config(self, config: dict[str, Any]) -> None:
        write_atomically(self.run.config_path, json.dumps(config, indent=1).encode())

    def save(self) -> Path:
        state = {"scores": self.scores, "run": self.key.slug, **self.metrics.state()}
        return checkpoint.save(self.run.checkpoints, Checkpoint(self.step, self.trainer.state(), state))

    # --- train --------------------------------------------------------------------------------

    def plan(self) -> Plan:
        recipe, choices = self.job.recipe, getattr(self.trainer.prepared, "choices", ())
        plain = sorted({f"some units run plain: {choice.reason}." for choice in choices if choice.runner == "plain"})
        if isinstance(self.key.network, Chain):
            plain = [f"PyTorch alone computes {self.key.network.name}, as it has no residual units."]
        known = self.trainer.task.notices(self.trainer.net)
        notices = (*plain, *known, *self._describe_threads(), *self.trainer.schedule.notices())
        examples, network = self.trainer.schedule.images, self.key.network.name
        names = self.run.path, network, self.key.data, examples, recipe.name, self.job.why
        return Plan(*names, recipe.batch, self.total, self.step, notices)

    def _describe_threads(self) -> list[str]:
        why = resume.find_thread_dependence(self.trainer.prepared)
        if why is None or self.trainer.device.type != "cpu":
            return []
        return [f"another number of threads than {torch.get_num_threads()} would change the rounding, as {why}."]

    def go(self) -> None:
        """Train from here to the end."""
        try:
            self._emit("on_start", self.plan())
            self._train()
            self._finish()
        except NotFiniteError as error:
            good = checkpoint.list_checkpoints(self.run.checkpoints)
            advice = (
                f"the last good checkpoint is {good[0] if good else 'missing'}; "
                "lower the learning rate, or lengthen the warm-up, and start a new run."
            )
            raise DivergedError(self.run.path, str(error), advice) from None
        finally:
            for callback in self.callbacks:
                callback.close()

    def _emit(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *details)

    def log(self, kind: str, **numbers: Any) -> None:
        """Write a line of metrics. Lines after the last checkpoint are written again when the run is resumed."""
        if self.workers.is_main:
            epoch = round(self.step * self.trainer.recipe.batch / self.trainer.stream.n, 4)
            self._emit("on_log", {"kind": kind, "step": self.step, "epoch": epoch, **numbers})

    @property
    def ends_epoch(self) -> bool:
        """Whether the last step was the last of its epoch, or of the training."""
        stream = self.trainer.stream
        return self.step == self.total or stream.epoch(self.step) > stream.epoch(self.step - 1)

    @property
    def epoch_start(self) -> int:
        """The first step of the epoch in which the last step began."""
        stream = self.trainer.stream
        return stream.first(stream.epoch(self.step - 1))

    def epoch_means(self) -> dict[str, float]:
        return self.trainer.means(self.epoch_start, self.step - 1)

    def _train(self) -> None:
        saved_at = time.monotonic()
        with catch_interrupts() as asked:
            while self.step < self.total:
                self.trainer.step(self.step)
                self.step += 1
                self._emit("on_step")
                if self.ends_epoch:
                    for split in self._splits(self.options.curve):
                        self._score(split)
                    self._emit("on_epoch", self.epoch_means())
                stop = asked()
                if stop or time.monotonic() - saved_at >= self.options.checkpoint_every or self.step == self.total:
                    self._checkpoint()
                    saved_at = time.monotonic()
                if stop:
                    sentence = f"stopped after step {self.step:,}; the same command goes on from there."
                    if self.workers.is_main:
                        say(sentence)
                    raise KeyboardInterrupt(sentence)

    def _splits(self, test: bool) -> list[str]:
        return [split for split in self.trainer.task.splits if test or split != "test"]

    def _score(self, split: str) -> dict[str, Any]:
        score = self.trainer.score(split)
        self.scores[split] = self.step, score
        self._emit("on_test", split, score)
        return score

    def _checkpoint(self) -> None:
        """A checkpoint, after everything logged before it is on the disk; never one that is not finite."""
        self.trainer.check(self.step - 1)
        if self.workers.is_main:
            self.metrics.flush()
            self._emit("on_checkpoint", self.save())

    def _finish(self) -> None:
        trainer = self.trainer
        trainer.finish()
        scores = {}
        for split in self._splits(self.options.test):
            step, known = self.scores.get(split, (0, {}))
            scores[split] = self._score(split) if step < self.step or trainer.recipe.precise_bn else known
        if not self.workers.is_main:
            return
        self.metrics.finish()
        header = {"run": json.dumps(self.run.config["run"]), "scores": json.dumps(scores)}
        trainer.task.save(trainer.final_net, self.run.weights, {**trainer.task.header(), **header})
        last = [line for line in self.run.metrics() if line["kind"] == "epoch"][-1]
        task = {} if self.key.task == "classification" else {"task": self.key.task}
        result = {"steps": self.step, **task, "train": {name: last[name] for name in trainer.task.numbers}, **scores}
        write_atomically(self.run.result_path, json.dumps(result, indent=1).encode())
        self._emit("on_end", result)
