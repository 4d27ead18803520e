"""Many trainings by one call: every combination of some values, each with several seeds. `resnets.sweep`.

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
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from resnets.differences import join_settings, write_value
from resnets.errors import UserError, one_of, shown
from resnets.experiments.options import SweepOptions
from resnets.options import fields_of, parse_whole
from resnets.recipe import Recipe, recipe_of
from resnets.runs import Run, Summary
from resnets.spec import Spec
from resnets.text import print_lines
from resnets.zoo import spec_of

_NETWORK = [field.name for field in dataclasses.fields(Spec) if field.name != "name"] + ["depth"]
_RECIPE = {field.name: field for field in dataclasses.fields(Recipe) if field.name != "name"}
_OTHERS = ("data", "recipe", "weights")  # options of `train` that can be varied too
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
    """The finished runs of a sweep, and what became of each trial."""

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

    def start(self, trial: Trial, number: int, count: int) -> None:
        """A run begins."""

    def note(self, trial: Trial, line: str) -> None:
        """A line that a run in a process of its own says."""

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
    model: str | Spec, options: SweepOptions, seed: int = 0, keywords: Mapping[str, Any] | None = None
) -> tuple[Trial, ...]:
    """The trials of a sweep, seeds last. A value that no network or recipe takes is refused."""
    keywords = keywords or {}
    varied = [_resolve_alias(name, given) for name, given in options.vary]
    names = [name for name, _ in varied]
    values = [[_parse(name, value) for value in given] for name, given in varied]
    variants = [tuple(zip(names, each, strict=True)) for each in itertools.product(*values)]
    for variant in variants:
        _check(model, _apply(keywords, variant))
    if len(set(map(repr, variants))) < len(variants):
        raise UserError("vary has a value twice; every run would be made twice.")
    return tuple(Trial(variant, each) for variant in variants for each in options.list_seeds(seed))


def _resolve_alias(name: str, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """Another name of a field of the recipe becomes the field, as `epochs` 3 becomes `length` 3ep."""
    for field in _RECIPE.values():
        if name in (aliases := field.metadata.get("aliases", {})):
            return field.name, [value if aliases[name] == "{}" else aliases[name].format(value) for value in values]
    return name, values


def _parse(name: str, value: Any) -> Any:
    """A value of a field; text becomes what the field holds."""
    if name not in (*_NETWORK, *_RECIPE, *_OTHERS):
        raise one_of("field to vary", name, [*_NETWORK, *_RECIPE, *_OTHERS])
    if not isinstance(value, str):
        return value
    kind = str(_RECIPE[name].type) if name in _RECIPE else _KINDS.get(name, "str")
    try:
        match kind:
            case "int":
                return parse_whole(value)
            case "float":
                return float(value)
            case "bool":
                return {"true": True, "yes": True, "false": False, "no": False}[value.lower()]
            case "numbers":
                return value if value[:1].isalpha() else tuple(map(parse_whole, value.split(",")))
    except (ValueError, KeyError):
        raise UserError(f"{name} cannot be {shown(value)}; it is a {_WORDS[kind]}.") from None
    return value


_KINDS = {  # of the fields of a network that are not text
    **dict.fromkeys(("num_classes", "in_channels", "depth"), "int"),
    **dict.fromkeys(("bn_eps", "bn_momentum"), "float"),
    **dict.fromkeys(("blocks", "widths", "kernels"), "numbers"),
    "stem_activation": "bool",
}
_WORDS = {"int": "whole number", "float": "number", "bool": "yes or no", "numbers": "list such as 16,32,64"}


def _apply(keywords: Mapping[str, Any], variant: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The keywords of `train` for a variant."""
    network = {**(keywords.get("network") or {}), **{name: value for name, value in variant if name in _NETWORK}}
    others = {name: value for name, value in variant if name not in _NETWORK}
    return {**keywords, **others, **({"network": network} if network else {})}


def _check(model: str | Spec, keywords: Mapping[str, Any]) -> None:
    """Refuse what `train` would refuse, before the first run."""
    if isinstance(model, str):
        spec_of(model, **keywords.get("network", {}))
    elif keywords.get("network"):
        raise UserError("a network given as a Spec cannot be varied; name it, or call sweep for each spec.")
    changes = {name: keywords[name] for name in _RECIPE if name in keywords}
    recipe = keywords.get("recipe")
    if recipe is not None and recipe != "auto":
        recipe_of(recipe, **changes)
    elif changes:
        recipe_of("cifar-paper", **changes)


# --- the runs ---------------------------------------------------------------------------------


def sweep(
    model: str | Spec,
    vary: Mapping[str, Sequence[Any]] | Sequence[str] = (),
    *,
    watcher: SweepWatcher | None = None,
    **options: Any,
) -> Sweep:
    """Train a network with every combination of the values in `vary`, and with every seed.

    `options` are `seeds`, `runs` and `jobs` of `SweepOptions`, and all that `train` takes. With `jobs` above 1, so many
    runs at a time are trained in processes of their own, which share the cores. A run that fails does not stop the
    others; `failures` names it. Ctrl-C stops all runs after their step.

    >>> found = resnets.sweep("preresnet20", {"shortcut": ["identity", "scale:0.5:1"]}, seeds=(0, 1, 2), jobs=2)
    >>> [str(each.errors) for each in found.summarize()]
    """
    own = {name: options.pop(name) for name in fields_of(SweepOptions) if name in options}
    chosen = SweepOptions(**{"vary": vary, **own})
    trials = plan_sweep(model, chosen, options.pop("seed", 0), options)
    return run_sweep(model, trials, chosen.jobs, options, watcher)


def run_sweep(
    model: str | Spec,
    trials: Sequence[Trial],
    jobs: int,
    keywords: Mapping[str, Any],
    watcher: SweepWatcher | None = None,
) -> Sweep:
    """Run planned trials; `keywords` are those of `train` that all of them have."""
    watcher = watcher or SweepWatcher()
    train_all = _train_here if jobs == 1 or len(trials) == 1 else _train_in_processes
    return Sweep(train_all(model, trials, jobs, keywords, watcher))


def _train_here(
    model: str | Spec, trials: Sequence[Trial], jobs: int, keywords: Mapping[str, Any], watcher: SweepWatcher
) -> tuple[Trial, ...]:
    """One after the other, in this process."""
    from resnets.training.session import train  # imports torch

    ended = []
    for number, trial in enumerate(trials, 1):
        watcher.start(trial, number, len(trials))
        try:
            run = train(model, seed=trial.seed, **_apply(keywords, trial.variant))
            ended.append(dataclasses.replace(trial, run=Run(run.path)))
        except UserError as error:
            ended.append(dataclasses.replace(trial, failure=str(error)))
        watcher.end(ended[-1], number, len(trials))
    return tuple(ended)


class _Process:
    """A trial in a process of its own, which reads its job from standard input and writes what became of it."""

    def __init__(self, number: int, trial: Trial, job: dict[str, Any], lines: queue.Queue[tuple[int, str]]) -> None:
        self.number, self.trial, self.answer = number, trial, ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "resnets.experiments.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="backslashreplace",
            start_new_session=True,  # so that Ctrl-C reaches it only once: from here
        )  # fmt: skip
        with suppress(BrokenPipeError), self._pipe(self.process.stdin) as pipe:
            pipe.write(json.dumps(job))
        self.threads = [
            threading.Thread(target=self._read_lines, args=(lines,), daemon=True),
            threading.Thread(target=self._read_answer, daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def stop(self) -> None:
        """Let it end after its step; the second time, at once."""
        if os.name == "nt":  # where no signal can be sent to one process
            self.process.terminate()
        else:
            self.process.send_signal(signal.SIGINT)

    def _read_lines(self, lines: queue.Queue[tuple[int, str]]) -> None:
        for line in self._pipe(self.process.stderr):
            lines.put((self.number, line.rstrip("\n")))

    def _read_answer(self) -> None:
        self.answer = self._pipe(self.process.stdout).read()

    def end(self) -> Trial:
        """What became of a process that has ended."""
        for thread in self.threads:
            thread.join()
        for pipe in (self.process.stdout, self.process.stderr):
            self._pipe(pipe).close()
        try:
            answer = json.loads(self.answer)
        except ValueError:
            answer = {"failure": f"its process ended with code {self.process.returncode} and no answer."}
        run = Run(Path(answer["run"])) if "run" in answer else None
        return dataclasses.replace(self.trial, run=run, failure=answer.get("failure"))


def _train_in_processes(
    model: str | Spec, trials: Sequence[Trial], jobs: int, keywords: Mapping[str, Any], watcher: SweepWatcher
) -> tuple[Trial, ...]:
    """`jobs` at a time. After Ctrl-C none begins, and those that run end after their step."""
    named = model.to_dict() if isinstance(model, Spec) else model
    base = _plain({"model": named, "argv": sys.argv, "jobs": min(jobs, len(trials))})
    waiting = list(enumerate(trials, 1))
    running: dict[int, _Process] = {}
    ended: dict[int, Trial] = {}
    lines: queue.Queue[tuple[int, str]] = queue.Queue()
    with _forward_signals(running) as stops:
        while running or (waiting and not stops):
            while waiting and len(running) < jobs and not stops:
                number, trial = waiting.pop(0)
                watcher.start(trial, number, len(trials))
                job = {**base, "keywords": _plain({**_apply(keywords, trial.variant), "seed": trial.seed})}
                running[number] = _Process(number, trial, job, lines)
            for number, line in _take(lines):
                watcher.note(trials[number - 1], line)
            for number in [number for number, each in running.items() if each.process.poll() is not None]:
                ended[number] = running.pop(number).end()
                for other, line in _take(lines, wait=False):
                    watcher.note(trials[other - 1], line)
                watcher.end(ended[number], number, len(trials))
    if stops:
        raise KeyboardInterrupt
    return tuple(ended[number] for number in sorted(ended))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as JSON has them; what a process of its own cannot be given is refused."""

    def write(value: Any) -> str:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Recipe):
            return {"recipe": dataclasses.asdict(value)}  # type: ignore[return-value]
        raise UserError(f"jobs above 1 need options that can be written down, not {shown(value)}; take jobs=1.")

    return json.loads(json.dumps(values, default=write))


def _take(lines: queue.Queue[tuple[int, str]], wait: bool = True) -> Iterator[tuple[int, str]]:
    """What has been said; waits a moment for the first line."""
    try:
        yield lines.get(timeout=_WAIT) if wait else lines.get_nowait()
        while True:
            yield lines.get_nowait()
    except queue.Empty:
        return


@contextmanager
def _forward_signals(running: Mapping[int, _Process]) -> Iterator[list[int]]:
    """Pass Ctrl-C and SIGTERM on to all running processes; gives the list of the signals that came."""
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        came.append(number)
        for each in list(running.values()):
            each.stop()

    old = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, stop)
    except ValueError:  # not in the main thread: the caller's business
        pass
    try:
        yield came
    except BaseException:  # of this process: the others must not go on alone
        stop(0, None)
        raise
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
