"""Runs of a second: a net of three units on 256 procedural images."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from resnets.runs import Run
from resnets.training.callbacks import Callback  # noqa: F401
from resnets.training.classification import Classification
from resnets.training.loop import Trainer
from resnets.training.session import train
from tools.torture.training import OPTIONS, curve, weights

NETWORK = OPTIONS["network"]


STOPPER = Path(__file__).with_name("stopper.py")


def two_processes(
    words: list[str], timeout: float = 120, code: int = 0, stop_at: int | None = None, script: Path | None = None
) -> list[tuple[str, str]]:
    """`resnets` with these words as rank 0 and rank 1 of two, which end with `code`; what each printed.

    Both stop by hand before step `stop_at`, if it is given. With a `script` they run that.
    """
    program = ["-m", "resnets"] if stop_at is None else [str(STOPPER), str(stop_at)]
    program = program if script is None else [str(script)]
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
    codes = [process.returncode for process in processes]
    if stop_at is not None:  # gloo's threads may abort a process that ends in the middle of a run, after its checkpoint
        codes = [code if found == -signal.SIGABRT else found for found in codes]
    assert codes == [code, code], said
    return said


def trainer_of(
    spec: Any, data: Any, recipe: Any, seed: int, *, net: Any = None, reading: Any = None, **how: Any
) -> Trainer:
    """A trainer of a network on images, without a run."""
    return Trainer(Classification(spec, data, net=net, reading=reading), recipe, seed, **how)


def train_tiny(out: Path, **changes: Any) -> Run:
    return train(**{**OPTIONS, "out": out, **changes})


def assert_same(one: Run, other: Run) -> None:
    """The same bytes of weights, the same metrics, the same result."""
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.numpy().tobytes() == right[name].numpy().tobytes(), name
    assert curve(one) == curve(other)
    assert one.result_path.read_bytes() == other.result_path.read_bytes()
