"""Several processes at once, workers that die under torchrun, and a disk that is full."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from resnets.runs import Run
from tools.torture.promises import BrokenPromiseError, SkippedError
from tools.torture.training import differing_bytes, only_run
from tools.torture.worker import Draw

STARTS = 12
PATIENCE = 400.0  # seconds for everything that one attack waits for
TRAIN = [
    "train", "preresnet20", "--widths", "8,16,16", "--blocks", "1", "--data", "synthetic:256", "--length", "60it",
    "--batch", "48", "--warmup", "0it", "--milestones", "", "--sizes", "16@0", "--ema", "0.5", "--validation", "40",
    "--log-every", "1", "--checkpoint-every", "0", "--quiet",
]  # fmt: skip


def start(words: Sequence[str | Path], log: Path, module: str = "resnets", **env: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        command = [sys.executable, "-m", module, *map(str, words)]
        return subprocess.Popen(command, env={**os.environ, **env}, stdout=file, stderr=file, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those of its group."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def require(done: bool, what: str, log: Path) -> None:
    if not done:
        said = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])[-300:]
        raise BrokenPromiseError("tracebacks", f"{what}: {said}")


def require_same(one: Run, other: Run, what: str) -> None:
    if count := differing_bytes(one, other):
        raise BrokenPromiseError("differing bytes", f"{what}: another end than one left alone", count)


def wait_for(done: Callable[[], object], processes: Sequence[subprocess.Popen[bytes]], what: str, log: Path) -> None:
    """Wait until something is so, while the processes live."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        alive = all(process.poll() is None for process in processes)
        require(alive and time.monotonic() < deadline, f"{what} did not begin to train", log)
        time.sleep(0.01)


def step_of(out: Path) -> int:
    """The step of the newest checkpoint."""
    steps = [int(path.name.split("-")[1]) for path in out.glob("*/checkpoints/step-*.safetensors")]
    return max(steps, default=0)


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in tasks for word in path.read_text().split()]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Together:
    """The attacks in turn."""

    def __init__(self, folder: Path) -> None:
        self.attacks = (same_run, empty_cache, full_disk, worker_killed, agent_killed)

    def attack(self, draw: Draw, folder: Path) -> None:
        attack = self.attacks[draw.number % len(self.attacks)]
        self.doing = attack.__name__
        attack(draw, folder)


def same_run(draw: random.Random, folder: Path) -> None:
    """Two trainings of one run: the second is refused while the first trains."""
    log = folder / "log"
    first = start([*TRAIN, "--out", folder / "both"], log)
    try:
        wait_for(lambda: step_of(folder / "both"), [first], "the first", log)
        os.kill(first.pid, signal.SIGSTOP)  # so that it cannot end before the second is there
        second = start([*TRAIN, "--out", folder / "both"], folder / "second")
        code = second.wait(PATIENCE)
        refused = code == 2 and b"another process is training" in (folder / "second").read_bytes()
        require(refused, f"a second training of the same run, exit code {code}", folder / "second")
        os.kill(first.pid, signal.SIGCONT)
        require(first.wait(PATIENCE) == 0, "the first of two trainings", log)
    finally:
        end(first)
    alone = start([*TRAIN, "--out", folder / "alone"], log)
    require(alone.wait(PATIENCE) == 0, "a training left alone", log)
    require_same(only_run(folder / "alone"), only_run(folder / "both"), "two trainings of one run")


def empty_cache(draw: random.Random, folder: Path) -> None:
    """Twelve starts at once into an empty cache: each compiles or waits, and all compute the same."""
    cache = str(folder / "cache")
    processes = [
        start([*TRAIN, "--out", folder / f"out{i}"], folder / f"log{i}", RESNETS_CACHE=cache) for i in range(STARTS)
    ]
    try:
        for i, process in enumerate(processes):
            require(process.wait(PATIENCE) == 0, "one of twelve starts into an empty cache", folder / f"log{i}")
    finally:
        for process in processes:
            end(process)
    for i in range(1, STARTS):
        require_same(only_run(folder / "out0"), only_run(folder / f"out{i}"), "twelve starts into an empty cache")
    if left := list((folder / "cache").rglob("*.part")):
        raise BrokenPromiseError("left behind", f"twelve starts leave {left[0].suffix} in the cache")


def full_disk(draw: random.Random, folder: Path) -> None:
    """A full disk is reported in a sentence; with space again, the run ends as if nothing had happened."""
    disk = folder / "disk"
    disk.mkdir()
    mount(disk, "size=1m")
    try:
        fill(disk, draw, folder)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


def fill(disk: Path, draw: random.Random, folder: Path) -> None:
    log = folder / "log"
    first = start([*TRAIN, "--out", disk], log)
    try:
        at = draw.randrange(1, 20)
        wait_for(lambda: step_of(disk) >= at, [first], "a training on a small disk", log)
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        code = first.wait(PATIENCE)
    finally:
        end(first)
    require(code == 2 and b"the disk is full" in log.read_bytes(), f"a full disk, exit code {code}", log)
    (disk / "ballast").unlink()
    mount(disk, "remount,size=8m")
    for out in (disk, folder / "alone"):
        done = start([*TRAIN, "--out", out], log)
        require(done.wait(PATIENCE) == 0, "a training after the disk was full", log)
    require_same(only_run(folder / "alone"), only_run(disk), "a disk that was full")


def worker_killed(draw: random.Random, folder: Path) -> None:
    """torchrun starts a killed worker again."""
    words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3", "-m", "resnets", *TRAIN]
    alone, log = folder / "alone", folder / "log"
    done = start([*words, "--out", alone], log, "torch.distributed.run")
    require(done.wait(PATIENCE) == 0, "two workers left alone", log)
    agent = start([*words, "--out", folder / "killed"], log, "torch.distributed.run")
    try:
        at = draw.randrange(1, 30)
        wait_for(lambda: step_of(folder / "killed") >= at, [agent], "torchrun", log)
        os.kill(draw.choice(children_of(agent.pid)), signal.SIGKILL)
        require(agent.wait(PATIENCE) == 0, "torchrun with a killed worker", log)
    finally:
        end(agent)
    require_same(only_run(alone), only_run(folder / "killed"), "a killed worker")


def agent_killed(draw: random.Random, folder: Path) -> None:
    """Two agents of torchrun, as on two machines: one is killed with its worker, and comes back."""
    logs = [folder / "log0", folder / "log1"]
    for out in (folder / "alone", folder / "killed"):
        begin = agents_of(out)
        agents = [begin(i, logs[i]) for i in range(2)]
        try:
            if out.name == "killed":
                at = draw.randrange(1, 30)
                wait_for(lambda at=at: step_of(folder / "killed") >= at, agents, "two agents", logs[0])  # type: ignore[misc]
                workers = children_of(agents[1].pid)
                end(agents[1])
                for worker in workers:  # torchrun gives them sessions of their own
                    with suppress(OSError):
                        os.kill(worker, signal.SIGKILL)
                agents[1] = begin(1, logs[1])
            for i, agent in enumerate(agents):
                require(agent.wait(PATIENCE) == 0, f"two agents, {out.name}", logs[i])
        finally:
            for agent in agents:
                end(agent)
    require_same(only_run(folder / "alone"), only_run(folder / "killed"), "a killed agent")


def agents_of(out: Path) -> Callable[[int, Path], subprocess.Popen[bytes]]:
    """How to start one of two agents that meet on this machine. The first keeps what they agree on."""
    place = f"127.0.0.1:{free_port()}"

    def begin(number: int, log: Path) -> subprocess.Popen[bytes]:
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d"]
        words += ["--rdzv-endpoint", place, "--rdzv-id", "torture", "--local-addr", "127.0.0.1"]
        words += ["--rdzv-conf", f"is_host={int(number == 0)}", "-m", "resnets", *TRAIN, "--out", str(out)]
        return start(words, log, "torch.distributed.run", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")

    return begin


def mount(folder: Path, options: str) -> None:
    """A disk in memory, in a space of mounts of our own that ends with this process."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise SkippedError("only root on Linux can mount a small disk")
    if not options.startswith("remount") and ctypes.CDLL(None).unshare(0x00020000):  # CLONE_NEWNS
        raise SkippedError("this system gives no space of mounts of our own")
    for command in (["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SkippedError(f"mount says: {done.stderr.strip()}")
