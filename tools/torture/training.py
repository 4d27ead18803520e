"""Trainings of a second in forks, the kills that they survive, and whether two runs ended the same."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import safetensors.torch

from resnets.runs import Run
from resnets.training import session
from resnets.training.loop import Trainer

START, FINISH = -1, 10**9  # moments besides the steps: the process has started, the last step is done
MEASURED = ("images_per_second", "memory")  # what differs between two equal runs
OPTIONS: dict[str, Any] = {
    "model": "preresnet20",
    "data": "synthetic:256",
    "network": {"widths": (4, 8, 8), "blocks": 1},
    "length": "12it",
    "batch": 48,  # an epoch ends in the middle of a batch
    "warmup": "2it",
    "milestones": "9it",
    "sizes": "16@0",
    "log_every": 3,
    "quiet": True,
}


def start(options: dict[str, Any]) -> tuple[int, int]:
    """Start a process that trains; returns its id, and a pipe to which it writes each step."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        return pid, read
    code = 1
    try:
        step, finish = Trainer.step, Trainer.finish

        def report_step(self: Trainer, i: int) -> None:
            os.write(write, b"%d\n" % i)
            step(self, i)

        def report_finish(self: Trainer) -> None:
            os.write(write, b"%d\n" % FINISH)
            finish(self)

        Trainer.step, Trainer.finish = report_step, report_finish  # type: ignore[method-assign]
        os.write(write, b"%d\n" % START)
        session.train(**options)
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def attempt(options: dict[str, Any], moment: int | None, jitter: float, number: int) -> tuple[int | None, int]:
    """Train until `moment`, wait a little, send the signal: where it struck (None: too late), and the exit code."""
    pid, pipe = start(options)
    struck = None
    with os.fdopen(pipe) as lines:
        for line in lines:
            if moment is not None and int(line) >= moment:
                time.sleep(jitter)
                os.kill(pid, number)
                struck = int(line)
                break
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (struck if code else None), code


# --- what a run ended with --------------------------------------------------------------------


def weights(run: Run) -> dict[str, Any]:
    return safetensors.torch.load_file(run.weights)


def curve(run: Run) -> list[dict[str, Any]]:
    """The metrics, without what is measured by the clock."""
    return [{k: v for k, v in line.items() if k not in MEASURED} for line in run.metrics()]


def differing_bytes(one: Run, other: Run) -> int:
    """Over the weights file, the metrics that are not measured by the clock, and the result."""
    pairs = [tuple(_parts(run)) for run in (one, other)]
    return sum(_count(left, right) for left, right in zip(*pairs, strict=True))


def _parts(run: Run) -> tuple[bytes, bytes, bytes]:
    metrics = "\n".join(json.dumps(line, sort_keys=True) for line in curve(run)).encode()
    return run.weights.read_bytes(), metrics, run.result_path.read_bytes()


def _count(left: bytes, right: bytes) -> int:
    return sum(a != b for a, b in zip(left, right, strict=False)) + abs(len(left) - len(right))


def only_run(out: Path) -> Run:
    (config,) = out.glob("*/config.json")
    return Run(config.parent)
