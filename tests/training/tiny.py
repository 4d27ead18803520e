"""Runs of a second: a net of three units on 256 procedural images."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from resnets.runs import Run
from resnets.training.session import train

NETWORK = {"widths": (4, 8, 8), "blocks": 1}
OPTIONS: dict[str, Any] = {
    "model": "preresnet20",
    "data": "synthetic:256",
    "network": NETWORK,
    "length": "12it",
    "batch": 48,  # an epoch ends in the middle of a batch
    "warmup": "2it",
    "milestones": "9it",
    "sizes": "16@0",
    "log_every": 3,
    "quiet": True,
}
MEASURED = ("images_per_second", "memory")  # what differs between two equal runs


STOPPER = Path(__file__).with_name("stopper.py")


def two_processes(
    words: list[str], timeout: float = 120, code: int = 0, stop_at: int | None = None
) -> list[tuple[str, str]]:
    """`resnets` with these words as rank 0 and rank 1 of two, which end with `code`; what each printed.

    Both stop by hand before step `stop_at`, if it is given.
    """
    program = ["-m", "resnets"] if stop_at is None else [str(STOPPER), str(stop_at)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, *program, *words],
            env={**env, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    said = [process.communicate(timeout=timeout) for process in processes]
    assert [process.returncode for process in processes] == [code, code], said
    return said


def train_tiny(out: Path, **changes: Any) -> Run:
    return train(**{**OPTIONS, "out": out, **changes})


def weights(run: Run) -> dict[str, Tensor]:
    return safetensors.torch.load_file(run.weights)


def curve(run: Run) -> list[dict[str, Any]]:
    """The metrics, without what is measured by the clock."""
    return [{k: v for k, v in line.items() if k not in MEASURED} for line in run.metrics()]


def assert_same(one: Run, other: Run) -> None:
    """The same bytes of weights, the same metrics, the same result."""
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.numpy().tobytes() == right[name].numpy().tobytes(), name
    assert curve(one) == curve(other)
    assert one.result == other.result
