"""A process that makes attacks: `python -m tools.torture.worker NAME MODULE:CLASS LIMIT FOLDER`.

It reads seeds, one a line, and answers each with a line of JSON. What is slow to import and to prepare is done once;
each attack is made in a fork, so that a crash, a hang or memory that stays costs no more than the next fork.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from resnets.errors import UserError
from tools.torture import command
from tools.torture.promises import BrokenPromiseError, SkippedError

GIB = 1 << 30
MOST = GIB  # bytes that one attack may take
ROOM = 8 * GIB  # address space beyond what a worker has: so much is refused, for the machine's sake
KEPT = 200 << 20  # bytes that may stay after an attack before the fork is replaced
BATCH = 300  # attacks of one fork

Answer = dict[str, Any]


class Attack(Protocol):
    def attack(self, draw: Draw, folder: Path) -> int | None: ...


class Draw(random.Random):
    """The random numbers of one attack; its number lets an attack take turns."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name}:{number}")
        self.number = number


# --- memory -----------------------------------------------------------------------------------


def memory(field: str) -> int:
    """`VmRSS`, `VmHWM` or `VmSize` of this process in bytes; 0 where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) << 10
    return 0


def reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def limit_memory(room: int) -> None:
    if size := memory("VmSize"):
        resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))


def waiting(pid: int) -> float:
    """Seconds that a process has stood in line for a core: on a busy machine they do not count as its own."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


# --- one attack -------------------------------------------------------------------------------


def attempt(attack: Attack, draw: Draw, folder: Path) -> Answer:
    """Make one attack in an empty folder, and say what it came to."""
    folder.mkdir(parents=True)
    canary = folder.parent / "CANARY"
    os.environ["RESNETS_CANARY"] = str(canary)
    os.chdir(folder)
    answer: Answer = {"tried": 1}
    try:
        tried = attack.attack(draw, folder)
        answer["tried"] = 1 if tried is None else tried
    except BrokenPromiseError as broken:
        answer |= {"kind": broken.kind, "what": broken.what, "amount": broken.amount}
    except SkippedError as skipped:
        answer |= {"tried": 0, "skipped": str(skipped)}
    except UserError as error:
        answer["told"] = str(error)
    except (Exception, SystemExit) as error:
        said = {"said": " ".join(str(error).split())[:200], "traceback": traceback.format_exc()}
        answer |= {"kind": "tracebacks", "what": place_of(error), **said}
    if canary.exists():
        canary.unlink()
        answer |= {"kind": "code executed", "what": "the canary was written"}
    os.chdir(folder.parent)
    shutil.rmtree(folder, ignore_errors=True)
    return answer


def place_of(error: BaseException) -> str:
    """The kind of an exception, and the last line of the package that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/resnets/" in frame.filename] or list(frames)
    return f"{type(error).__name__} at {_short(ours[-1].filename)}:{ours[-1].lineno} in {ours[-1].name}"


def _short(path: str) -> str:
    return re.sub(r".*/(src|site-packages|lib/python[\d.]+|tests)/", "", path)


# --- the fork that attacks --------------------------------------------------------------------


class Fork:
    """A copy of this process that makes attacks, one at a time."""

    def __init__(self, attack: Attack, name: str, folder: Path) -> None:
        self.log = folder / "log"
        inbox, self.orders = os.pipe()
        self.answers, outbox = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.orders)
            os.close(self.answers)
            code = 1
            try:
                self._serve(attack, name, folder, inbox, outbox)
                code = 0
            except BaseException:
                traceback.print_exc()  # into the log: a fault of the harness itself
            finally:
                os._exit(code)
        os.close(inbox)
        os.close(outbox)

    def _serve(self, attack: Attack, name: str, folder: Path, inbox: int, outbox: int) -> None:
        os.setsid()
        with self.log.open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        faulthandler.enable(2)
        faulthandler.register(signal.SIGUSR1, 2, all_threads=False)
        limit_memory(ROOM)
        begin, made = memory("VmRSS"), 0
        with os.fdopen(inbox) as seeds:
            for seed in seeds:
                reset_peak()
                answer = attempt(attack, Draw(name, int(seed)), folder / "attack")
                answer["memory"] = max(memory("VmHWM") - begin, 0)
                answer["doing"] = f"{getattr(attack, 'doing', name)}: {command.doing}"
                made += 1
                answer["last"] = made >= BATCH or memory("VmRSS") - begin > KEPT
                os.write(outbox, json.dumps(answer).encode() + b"\n")
                if answer["last"]:
                    return

    def ask(self, seed: int, limit: float) -> Answer:
        """The answer to one seed; `last` in it says that this fork is over."""
        os.write(self.orders, b"%d\n" % seed)
        began, waited, said = time.monotonic(), waiting(self.pid), b""
        while not said.endswith(b"\n"):
            left = limit - (time.monotonic() - began - (waiting(self.pid) - waited))
            if left <= 0:
                return self._end_hang(limit)
            if not select.select([self.answers], [], [], max(left, 0.1))[0]:
                continue
            if not (piece := os.read(self.answers, 1 << 16)):
                return self._tell_crash()
            said += piece
        answer: Answer = json.loads(said)
        answer["seconds"] = time.monotonic() - began
        if answer["last"]:
            self.close()
        return answer

    def _end_hang(self, limit: float) -> Answer:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.3)
        self.close()
        return {"tried": 1, "kind": "hangs", "what": f"longer than {limit:.0f} s {self._stack()}", "last": True}

    def _tell_crash(self) -> Answer:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self.pid = 0
        self.close()
        return {"tried": 1, "kind": "crashes", "what": f"{name} {self._stack()}", "last": True}

    def _stack(self) -> str:
        """Where it stood, from what faulthandler wrote: the first line of the package."""
        frames = re.findall(r'File "(.+?)", line (\d+) in (\S+)', self.log.read_text(errors="replace"))
        ours = [frame for frame in frames if "/resnets/" in frame[0]] or frames
        return "at {}:{} in {}".format(_short(ours[0][0]), *ours[0][1:]) if ours else "at an unknown place"

    def close(self) -> None:
        """End the fork and whatever it started."""
        if self.pid:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0
        for handle in (self.orders, self.answers):
            with suppress(OSError):
                os.close(handle)


def judge(answer: Answer) -> Answer:
    """What needed too much memory is broken too."""
    if answer.get("memory", 0) > MOST and "kind" not in answer:
        answer |= {"kind": "over memory", "what": f"more than 1 GiB in {answer['doing']}"}
    return answer


def load(where: str) -> Callable[[Path], Attack]:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    name, where, limit, folder = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    place = Path(folder)
    (place / "kept").mkdir(parents=True)
    os.chdir(place / "kept")
    attack = load(where)(place / "kept")
    print(json.dumps({"ready": True}), file=out, flush=True)
    fork: Fork | None = None
    try:
        for line in sys.stdin:
            fork = fork or Fork(attack, name, place)
            answer = judge(fork.ask(int(line), float(limit)))
            if answer["last"]:
                fork = None
                shutil.rmtree(place / "attack", ignore_errors=True)
            print(json.dumps(answer), file=out, flush=True)
    finally:
        if fork:
            fork.close()


if __name__ == "__main__":
    main()
