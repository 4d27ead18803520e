"""Trainings that are killed again and again must end with the bytes of one that was left alone."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from resnets.training import session
from tools.torture.promises import BrokenPromiseError
from tools.torture.training import OPTIONS, differing_bytes, only_run

SMALL = OPTIONS["network"]
MOST = 6  # kills of one training, after which it is left alone
VARIANTS: dict[str, dict[str, Any]] = {
    "fast": {"memory": "fast"},
    "lean": {"memory": "lean"},
    "min": {"memory": "min", "network": {**SMALL, "blocks": 3}},
    "plain PyTorch": {"engine": "plain"},
    "kernels": {"memory": "fast", "network": {**SMALL, "widths": (8, 16, 16)}},
    "average of weights": {"ema": 0.9, "validation": 40, "curve": True},
    "Muon": {"recipe": "cifar-quick", "ema": 0.5, "memory": "lean"},
    "dropout shortcut": {
        "model": "resnet20", "network": {**SMALL, "shortcut": "dropout"}, "micro_batch": 20, "every": 4,
        "precise_bn": 100, "validation": 40, "label_smoothing": 0.1,
    },
    "growing images": {"sizes": "16@0,24@0.4,32@0.7", "schedule": "onecycle", "nesterov": True, "flip": "alternate"},
}  # fmt: skip


def options_of(draw: random.Random, variant: str) -> dict[str, Any]:
    given = {**OPTIONS, **VARIANTS[variant], "checkpoint_every": draw.choice((0, 0, 0.02, 3600))}
    return {**given, "seed": draw.randrange(1000), "length": f"{draw.randrange(10, 20)}it"}


def fork(work: Callable[[], None]) -> int:
    """Do the work in a fork; its process id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        code = 0
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Kills:
    """SIGKILL at random instants. An attack is one training with several kills."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        session.train(**{**OPTIONS, "length": "2it", "warmup": "0it", "milestones": "", "out": folder})

    def attack(self, draw: random.Random, folder: Path) -> int:
        variant = draw.choice(sorted(VARIANTS))
        options = options_of(draw, variant)
        began = time.monotonic()
        whole = {**options, "out": folder / "whole"}
        if code := wait(fork(lambda: session.train(**whole))):
            raise BrokenPromiseError("tracebacks", f"{variant}: a training left alone ends with code {code}")
        self.took = time.monotonic() - began
        kills = self.disturb(draw, {**options, "out": folder / "killed"})
        if bytes_ := differing_bytes(only_run(folder / "whole"), only_run(folder / "killed")):
            raise BrokenPromiseError("differing bytes", f"{variant}: another end after {kills} kills", bytes_)
        if left := list((folder / "killed").rglob("*.part")):
            raise BrokenPromiseError("left behind", f"{variant}: {left[0].suffix} is left after kills")
        return kills

    def disturb(self, draw: random.Random, options: dict[str, Any]) -> int:
        """Kill the training some times, then let it end; how often a kill struck."""
        kills = 0
        while kills < MOST:
            pid = fork(lambda: session.train(**options))
            time.sleep(draw.uniform(0, self.took))
            os.kill(pid, signal.SIGKILL)
            if (code := wait(pid)) == 0:
                break
            require(code, {-signal.SIGKILL})
            kills += 1
        self.finish(options)
        return kills

    def finish(self, options: dict[str, Any]) -> None:
        require(wait(fork(lambda: session.train(**options))), {0})


def require(code: int, fine: set[int]) -> None:
    if code not in fine:
        raise BrokenPromiseError("tracebacks", f"a training that was killed does not go on: exit code {code}")


class FileKills(Kills):
    """Kills at the very moment of a file operation: before it, after a flush, and in the middle of a write."""

    def disturb(self, draw: random.Random, options: dict[str, Any]) -> int:
        count, kills = count_operations({**options, "out": Path(options["out"]).with_name("count")}), 0
        for _ in range(3):
            at, torn = draw.randrange(count), draw.random() < 0.4
            code = wait(fork(lambda at=at, torn=torn: die_at(options, at, draw.random() if torn else None)))  # type: ignore[misc]
            require(code, {0, -signal.SIGKILL, -signal.SIGXFSZ})
            kills += code != 0
        self.finish(options)
        return kills


def watch(root: Path, see: Callable[[str, Path | None], None]) -> None:
    """Tell every operation on files below a folder, before it is done. There is no end to it: use it in a fork."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir") and isinstance(args[0], (str, Path)):
            path = Path(args[1] if event == "os.rename" else args[0])
            if path.is_relative_to(root):
                see(event, path)

    fsync = os.fsync

    def flush(handle: int) -> None:
        see("fsync", None)
        fsync(handle)
        see("flushed", None)

    os.fsync = flush
    sys.addaudithook(hook)


def count_operations(options: dict[str, Any]) -> int:
    """How many file operations a training has if nothing interrupts it."""
    read, write = os.pipe()

    def work() -> None:
        watch(Path(options["out"]), lambda event, path: os.write(write, b".") and None)
        session.train(**options)

    pid = fork(work)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        count = len(pipe.read())
    require(wait(pid), {0})
    shutil.rmtree(options["out"])
    return count


def die_at(options: dict[str, Any], at: int, share: float | None) -> None:
    """Train, and die at one operation; with a share, in the middle of what is then written, or soon after."""
    seen = 0

    def see(event: str, path: Path | None) -> None:
        nonlocal seen
        seen += 1
        if seen != at + 1:
            return
        if share is None or event == "flushed":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # a write beyond the limit is done in part, and then kills
        longest = max((file.stat().st_size for file in Path(options["out"]).rglob("*") if file.is_file()), default=0)
        limit = int(share * max(longest, 1000))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    watch(Path(options["out"]), see)
    session.train(**options)
