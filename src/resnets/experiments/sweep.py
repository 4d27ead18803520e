"""Train every combination of some values, each with several seeds, by one call: `resnets.sweep`.

Each is an ordinary run, so the same call again skips what is finished and resumes what was stopped.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from resnets.chain import Chain, NetworkSpec
from resnets.differences import join_settings, write_value
from resnets.errors import UserError, shown
from resnets.experiments.options import SweepOptions
from resnets.options import fields_of, parse_value, split_keywords
from resnets.recipe import Recipe, recipe_of
from resnets.runs import Run, Summary
from resnets.spec import Spec
from resnets.text import print_lines
from resnets.training.options import TrainOptions
from resnets.user_code import IMPORTED
from resnets.zoo import NetworkOptions, spec_of

_VARIED = ("data", "recipe", "weights")  # options of `train` that can be varied; the others change no number
_WAIT = 0.2  # seconds until Ctrl-C is noticed


@dataclass(frozen=True)
class Trial:
    """One run of a sweep; `run` and `failure` are known when it has ended."""

    variant: tuple[tuple[str, Any], ...]
    seed: int
    run: Run | None = None
    failure: str | None = None

    @property
    def name(self) -> str:
        """The variant in words: `shortcut conv1x1, lr 0.1`."""
        return join_settings({name: write_value(value) for name, value in self.variant})

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" if self.variant else f"seed {self.seed}"


@dataclass(frozen=True)
class VariantSummary:
    """The finished runs of a variant."""

    name: str
    error_on: str
    errors: Summary

    @property
    def count(self) -> int:
        return len(self.errors.values)


@dataclass(frozen=True)
class Sweep(Sequence[Run]):
    """The finished runs of a sweep, and each trial with its run or its failure."""

    trials: tuple[Trial, ...]

    @property
    def runs(self) -> list[Run]:
        return [trial.run for trial in self.trials if trial.run is not None]

    @property
    def failures(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.failure is not None]

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: Any) -> Any:
        return self.runs[index]

    def summarize(self) -> list[VariantSummary]:
        """Mean and deviation over seeds, for each variant and each kind of images that it was tested on."""
        found: dict[tuple[str, str], list[float]] = {}
        for trial in self.trials:
            for split in ("validation", "test") if trial.run else ():
                if score := (trial.run.result or {}).get(split):  # type: ignore[union-attr]
                    found.setdefault((trial.name, split), []).append(score["error"])
        return [VariantSummary(name, split, Summary(tuple(errors))) for (name, split), errors in found.items()]


class SweepWatcher:
    """What a sweep reports while it works; this one shows nothing. Write a subclass to show it."""

    def show_plan(self, trials: Sequence[Trial]) -> None:
        """Before anything runs."""

    def start(self, trial: Trial, number: int, count: int) -> None:
        """A run begins."""

    def note(self, trial: Trial, line: str) -> None:
        """A run in another process printed a line."""

    def end(self, trial: Trial, number: int, count: int) -> None:
        """A run has ended, with a result or a failure."""


class ConsoleSweepWatcher(SweepWatcher):
    """Lines on standard error, each with the name of its run."""

    def start(self, trial: Trial, number: int, count: int) -> None:
        self._print(f"[{number}/{count}] {trial}")

    def note(self, trial: Trial, line: str) -> None:
        self._print(f"{trial}: {line}")

    def end(self, trial: Trial, number: int, count: int) -> None:
        if trial.failure:
            self._print(f"[{number}/{count}] {trial} failed")

    def _print(self, line: str) -> None:
        print_lines(line, file=sys.stderr, flush=True)


# --- the plan ---------------------------------------------------------------------------------


def plan_sweep(
    model: str | NetworkSpec, options: SweepOptions, seed: int = 0, keywords: Mapping[str, Any] | None = None
) -> tuple[Trial, ...]:
    """The trials of a sweep, seeds last. Refuses a value that no network or recipe takes."""
    values = [[_parse(name, value) for value in given] for name, given in options.vary]
    variants = list(itertools.product(*values))
    for variant in variants:
        if len(dict(variant)) < len(variant):
            raise UserError("vary has two names of one field; write all its values in one list.")
        _check(model, {**(keywords or {}), **dict(variant)})
    if len(set(map(repr, variants))) < len(variants):
        raise UserError("vary has a value twice; every run would be made twice.")
    return tuple(Trial(variant, each) for variant in variants for each in options.list_seeds(seed))


def _parse(name: str, value: Any) -> tuple[str, Any]:
    """The field that a name means, and its value; text becomes what the field holds."""
    records = NetworkOptions, Recipe, TrainOptions
    ((record, (given,)),) = [
        (record, found.items())
        for record, found in zip(records, split_keywords({name: value}, *records), strict=True)
        if found
    ]
    name, value = given
    if record is TrainOptions and name not in _VARIED:
        raise UserError(f"vary takes fields of the network and the recipe, {', '.join(_VARIED)}, and not {name}.")
    if not isinstance(value, str):
        return name, value
    try:
        return name, parse_value(fields_of(record)[name], value)
    except UserError as error:
        raise UserError(f"vary {name}={value}: {str(error).rstrip('.')}.") from None


def _check(model: str | NetworkSpec, keywords: Mapping[str, Any]) -> None:
    """Refuse what `train` would refuse, before the first run."""
    named = {name: value for name, value in keywords.items() if name not in ("network", "callbacks", "options")}
    options, changes, fields = split_keywords(named, TrainOptions, Recipe, NetworkOptions)
    network = {**(keywords.get("network") or {}), **fields}
    if isinstance(model, str):
        spec_of(model, **network)
    elif network:
        raise UserError("a network given as a Spec cannot be varied; name it, or call sweep for each spec.")
    recipe = options.get("recipe") or "auto"
    recipe_of("cifar-paper" if recipe == "auto" else recipe, **changes)


# --- the runs ---------------------------------------------------------------------------------


def sweep(
    model: str | NetworkSpec,
    vary: Mapping[str, Sequence[Any]] | Sequence[Any] = (),
    *,
    watcher: SweepWatcher | None = None,
    **keywords: Any,
) -> Sweep:
    """Train a network with every combination of the values in `vary`, and with every seed.

    `keywords` are `seeds`, `runs` and `jobs` of `SweepOptions`, and all that `train` takes. With `jobs` above 1, that
    many runs at a time are trained in processes of their own, which share the cores. A run that fails does not stop the
    others; `failures` names it. Ctrl-C stops all runs after their step.

    >>> found = resnets.sweep("preresnet20", {"shortcut": ["identity", "scale:0.5:1"]}, seeds=(0, 1, 2), jobs=2)
    >>> [str(each.errors) for each in found.summarize()]
    """
    own = {name: keywords.pop(name) for name in fields_of(SweepOptions) if name in keywords}
    options, watcher = SweepOptions(**{"vary": vary, **own}), watcher or SweepWatcher()
    trials = plan_sweep(model, options, keywords.pop("seed", 0), keywords)
    watcher.show_plan(trials)
    if options.jobs == 1 or len(trials) == 1:
        return Sweep(_train_here(model, trials, keywords, watcher))
    return Sweep(_train_in_processes(model, trials, options.jobs, keywords, watcher))


def _train_here(
    model: str | NetworkSpec, trials: Sequence[Trial], keywords: Mapping[str, Any], watcher: SweepWatcher
) -> tuple[Trial, ...]:
    """One after the other, in this process."""
    from resnets.training.session import train  # imports torch

    ended = []
    for number, trial in enumerate(trials, 1):
        watcher.start(trial, number, len(trials))
        try:
            run = train(model, seed=trial.seed, **{**keywords, **dict(trial.variant)})
            ended.append(dataclasses.replace(trial, run=Run(run.path)))
        except UserError as error:
            ended.append(dataclasses.replace(trial, failure=str(error)))
        watcher.end(ended[-1], number, len(trials))
    return tuple(ended)


def _train_in_processes(
    model: str | NetworkSpec, trials: Sequence[Trial], jobs: int, keywords: Mapping[str, Any], watcher: SweepWatcher
) -> tuple[Trial, ...]:
    """`jobs` at a time. After Ctrl-C none begins, and those that run end after their step."""
    named = model.to_dict() if isinstance(model, Spec | Chain) else model
    base = _plain({"model": named, "argv": sys.argv, "imports": IMPORTED, "jobs": min(jobs, len(trials))})
    waiting = list(enumerate(trials, 1))
    running: dict[int, subprocess.Popen[str]] = {}
    ended: dict[int, Trial] = {}
    events: queue.Queue[tuple[int, str | Trial]] = queue.Queue()  # a line that a trial printed, or the ended trial
    with _forward_signals(running) as stops:
        while running or (waiting and not stops):
            while waiting and len(running) < jobs and not stops:
                number, trial = waiting.pop(0)
                watcher.start(trial, number, len(trials))
                given = {**keywords, **dict(trial.variant), "seed": trial.seed}
                running[number] = _start_process({**base, "keywords": _plain(given)}, number, trial, events)
            try:
                number, event = events.get(timeout=_WAIT)
            except queue.Empty:
                continue
            if isinstance(event, str):
                watcher.note(trials[number - 1], event)
            else:
                ended[number] = event
                del running[number]
                watcher.end(event, number, len(trials))
    if stops:
        raise KeyboardInterrupt
    return tuple(ended[number] for number in sorted(ended))


def _start_process(
    job: dict[str, Any], number: int, trial: Trial, events: queue.Queue[tuple[int, str | Trial]]
) -> subprocess.Popen[str]:
    """Train in another process, which reads its job from standard input and writes the run or the failure."""
    answer = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (`_follow` closes it)
    process = subprocess.Popen(
        [sys.executable, "-m", "resnets.experiments.worker"],
        stdin=subprocess.PIPE, stdout=answer, stderr=subprocess.PIPE, text=True, errors="backslashreplace",
        start_new_session=True,  # so that Ctrl-C reaches it only once: from here
    )  # fmt: skip
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(json.dumps(job))
    threading.Thread(target=_follow, args=(process, answer, number, trial, events), daemon=True).start()
    return process


def _follow(
    process: subprocess.Popen[str],
    answer: IO[str],
    number: int,
    trial: Trial,
    events: queue.Queue[tuple[int, str | Trial]],
) -> None:
    """Pass on the lines that a process prints, and at its end the trial with the run or the failure."""
    assert process.stderr is not None
    with process, answer:
        for line in process.stderr:
            events.put((number, line.rstrip("\n")))
        code = process.wait()
        answer.seek(0)
        try:
            found = json.load(answer)
        except ValueError:
            found = {"failure": f"its process ended with code {code} and no answer."}
    run = Run(Path(found["run"])) if "run" in found else None
    events.put((number, dataclasses.replace(trial, run=run, failure=found.get("failure"))))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as JSON; refuses what another process cannot be given."""

    def write(value: Any) -> str:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Recipe):
            return {"recipe": dataclasses.asdict(value)}  # type: ignore[return-value]
        raise UserError(f"jobs above 1 need options that can be written down, not {shown(value)}; take jobs=1.")

    return json.loads(json.dumps(values, default=write))


@contextmanager
def _forward_signals(running: Mapping[int, subprocess.Popen[str]]) -> Iterator[list[int]]:
    """Pass Ctrl-C and SIGTERM on to all running processes; gives the list of the signals received."""
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        for process in list(running.values()):
            if os.name == "nt":  # where no signal can be sent to one process
                process.terminate()
            else:
                process.send_signal(signal.SIGINT)  # ends it after its step; the second time, at once

    old = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, stop)
    except ValueError:  # signals belong to the main thread, which this is not
        pass
    try:
        yield received
    except BaseException:  # this process fails: the others must not run on
        stop(0, None)
        raise
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
