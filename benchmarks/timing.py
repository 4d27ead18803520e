"""Rounds: each contestant once in every round, the first place going round, and never two at a time."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.lines import Line
from resnets.engine.system_memory import available

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 900.0  # seconds without an answer, after which a contestant is given up
GIB = 2**30

Tick = Callable[[], None]


class AbsentError(Exception):
    """There is nothing to measure, and why."""


class Worker:
    """A `benchmarks.worker` process, from its building to its end."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps(job)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def answer(self) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=PATIENCE)
        except queue.Empty:
            raise AbsentError(f"no answer for {PATIENCE:.0f} seconds") from None
        if not line:
            raise AbsentError(self._last_words())
        told: dict[str, Any] = json.loads(line)
        if "reason" in told:
            raise AbsentError(told["reason"])
        return told

    def round(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        with suppress(OSError):  # a dead worker has no answer, and that says more
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return self.answer()

    def _last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return f"ended with code {code}" + (f": {lines[-1]}" if lines else "")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with suppress(OSError):
                assert file is not None
                file.close()


def rotated(names: Sequence[str], by: int) -> list[str]:
    """The order of a round."""
    by %= len(names)
    return [*names[by:], *names[:by]]


def measure(line: Line, rounds: int, tick: Tick) -> dict[str, dict[str, Any]]:
    """What each contestant came to in each round, or the reason why it did not take part."""
    found: dict[str, dict[str, Any]] = {}
    for name, needs in line.needs.items():
        free = available()
        if free is not None and needs > free / GIB:
            found[name] = {"reason": f"needs about {needs:g} GiB of memory, and {free / GIB:.1f} GiB are free"}
    WAYS[line.way](line, rounds, found, tick)
    return {name: found[name] for name in line.contestants}


def _kept(line: Line, rounds: int, found: dict[str, dict[str, Any]], tick: Tick) -> None:
    """Workers that stay, waiting while another one works."""
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in line.contestants:
            if name not in found:
                workers[name] = stack.enter_context(Worker(line.job(name)))
                _ask(name, workers[name].answer, found)
        for i in range(rounds):
            for name in rotated(line.contestants, i):
                if "reason" not in found[name]:
                    _ask(name, workers[name].round, found)
                tick()


def _anew(line: Line, rounds: int, found: dict[str, dict[str, Any]], tick: Tick) -> None:
    """A new process for each round, and never two of them: for what needs most of the memory, or measures it."""
    for i in range(rounds):
        for name in rotated(line.contestants, i):
            if "reason" not in found.get(name, {}):
                with Worker(line.job(name)) as worker:
                    _ask(name, worker.answer, found)
                    if "reason" not in found[name]:
                        _ask(name, worker.round, found)
            tick()


def _processes(line: Line, rounds: int, found: dict[str, dict[str, Any]], tick: Tick) -> None:
    """Whole processes, from start to end; one first round that is not counted brings their files into memory."""
    for i in range(-1, rounds):
        for name in rotated(line.contestants, i):
            if "reason" not in found.get(name, {}):
                _ask(name, partial(_run, line.commands[name]), found)
                if i < 0 and "reason" not in found[name]:
                    found[name] = {}
            if i >= 0:
                tick()


def _told(line: Line, rounds: int, found: dict[str, dict[str, Any]], tick: Tick) -> None:
    """Whole processes that time themselves: their last line is an answer."""
    for i in range(rounds):
        for name in rotated(line.contestants, i):
            if "reason" not in found.get(name, {}):
                _ask(name, lambda words=line.commands[name]: json.loads(_output(words).splitlines()[-1]), found)  # type: ignore[misc]
            tick()


def _run(words: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:  # where a training finds no run to resume
        began = time.perf_counter()
        _output(words, Path(folder))
        return {"seconds": time.perf_counter() - began}


def _output(words: Sequence[str], folder: Path = ROOT) -> str:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AbsentError((done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1])
    return done.stdout


def _ask(name: str, question: Callable[[], dict[str, Any]], found: dict[str, dict[str, Any]]) -> None:
    """Add an answer's values to the lists of a contestant; whoever fails once is out, so that rounds stay aligned."""
    try:
        told = question()
    except AbsentError as absent:
        found[name] = {"reason": str(absent)}
        return
    held = found.setdefault(name, {})
    for key, value in told.items():
        held.setdefault(key, []).append(value)


WAYS = {"kept": _kept, "fresh": _anew, "process": _processes, "told": _told}


def load() -> float | None:
    """How busy the machine is, where it says so: a number much above 0 before a run spoils its numbers."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
