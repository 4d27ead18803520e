"""Attack the project until something breaks: `python -m tools.torture [--quick] [--only SECTION ...] [--seed N]`.

Writes results/torture.json. The exit code is 1 if any promise was broken; `--replay SECTION:SEED` repeats one attack.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.results import begun
from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.progress import Console
from resnets.runs import without_folders
from resnets.text import clock
from tools.torture.sections import GROUPS, SECTIONS, Section, chosen
from tools.torture.tally import Tally

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
MANY = 1_000_000  # seeds of one section: those of section N of --seed S begin at S * MANY
FRUITLESS = 20  # attacks in a row, from the first on, that had nothing to try
MARK = "RESNETS_TORTURE"  # in the environment of every process that we start, so that all can be found and ended


# --- processes --------------------------------------------------------------------------------


def environment(folder: Path, mark: str) -> dict[str, str]:
    """One thread, an own cache, no network, and our mark."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    nowhere = "http://127.0.0.1:9"  # the port that throws away
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere)
    return {
        **os.environ, **proxies, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RESNETS_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"), "PATH": os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")]),
        "MPLBACKEND": "Agg", MARK: mark, "no_proxy": "127.0.0.1,localhost",
    }  # fmt: skip


class Worker:
    """A `tools.torture.worker`; asks are answered through its pipe."""

    def __init__(self, name: str, section: Section, folder: Path, env: dict[str, str]) -> None:
        self.seed: int | None = None
        command = [sys.executable, "-m", "tools.torture.worker", name, section.where, str(section.limit), str(folder)]
        self.log = folder.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip

    def ask(self, seed: int) -> None:
        self.seed = seed
        assert self.process.stdin is not None
        print(seed, file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return json.loads(line)
        tail = " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-8:])
        what = f"the worker ended, exit code {self.process.wait()}: {tail}"
        if self.seed is None:
            raise UserError(f"a section cannot be prepared: {what}")
        return {"tried": 1, "kind": "crashes", "what": what}

    def close(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def end_marked(mark: str) -> None:
    """End every process that carries our mark: those of torchrun have sessions of their own."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)


# --- sections ---------------------------------------------------------------------------------


def answers(
    name: str, section: Section, seeds: Iterator[int], *, folder: Path, env: dict[str, str], workers: int = WORKERS
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each seed with its answer, as they come, from some workers."""
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        numbers = itertools.count()

        def begin() -> None:
            worker = Worker(name, section, folder / f"{name}-{next(numbers)}", env)
            stack.callback(worker.close)
            ready.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

        for _ in range(workers):
            begin()
        while ready.get_map():
            for key, _ in ready.select():
                worker = key.data
                answer = worker.answer()
                if worker.seed is not None:
                    yield worker.seed, answer
                if worker.process.poll() is not None:
                    ready.unregister(key.fileobj)
                    begin()
                elif (seed := next(seeds, None)) is None:
                    ready.unregister(key.fileobj)
                else:
                    worker.ask(seed)


def run_section(
    name: str, section: Section, tally: Tally, *, seed: int, count: int, folder: Path, env: dict[str, str]
) -> None:
    """Attack until `count` things were tried; the tally is filled as answers come."""
    console, done = Console(), 0

    def seeds() -> Iterator[int]:
        for number in itertools.count():
            if tally.tried >= count or (done >= FRUITLESS and not tally.tried):
                return
            yield seed * MANY + number

    workers = min(WORKERS, max(1, count // section.each))
    with console.task(name, count) as advance:
        for used, answer in answers(name, section, seeds(), folder=folder, env=env, workers=workers):
            done += 1
            before = tally.tried
            if tally.add(name, used, answer):
                said = f" ({answer['said'][:80]})" if "said" in answer else ""
                console.note(f"{name}:{used}  {answer['kind']}: {answer['what']}{said}")
            advance(tally.tried - before)


def replay(word: str, folder: Path, env: dict[str, str]) -> int:
    """Make one attack again and print all that is known of it; 1 if it breaks a promise."""
    name, _, seed = word.partition(":")
    section = chosen([name])[name] if name not in GROUPS else None
    if section is None or not seed.isdigit():
        raise UserError(f"--replay takes SECTION:SEED, as in pictures:3000017, not {word!r}.")
    ((_, answer),) = answers(name, section, iter([int(seed)]), folder=folder, env=env, workers=1)
    print(answer.pop("traceback", ""), end="")
    print(json.dumps(answer, indent=1))
    return int("kind" in answer)


# --- the whole --------------------------------------------------------------------------------


def write(path: Path, about: dict[str, Any], tallies: dict[str, Tally], complete: bool, began: float) -> None:
    found = {name: tally.to_dict() for name, tally in tallies.items()}
    data = {**about, "complete": complete, "seconds": round(time.monotonic() - began), "sections": found}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())


def torture(args: argparse.Namespace, folder: Path, env: dict[str, str]) -> int:
    wanted, began = chosen(args.only or []), time.monotonic()
    about = {**begun("tools.torture"), "seed": args.seed, "quick": args.quick}
    about["command"] = without_folders(about["command"])
    tallies: dict[str, Tally] = {}
    console = Console()
    console.note(f"seed {args.seed}; the same again: python -m tools.torture --seed {args.seed}")
    complete = False
    try:
        for name, section in wanted.items():
            count = args.count or (section.quick if args.quick else section.full)
            tallies[name] = Tally()
            run_section(name, section, tallies[name], seed=args.seed, count=count, folder=folder, env=env)
            console.note(f"{clock(time.monotonic() - began)}  {name}: {summary(tallies[name])}")
        complete = wanted.keys() == SECTIONS.keys() and not args.count
    except KeyboardInterrupt:
        console.note("stopped; what was found so far is written.")
        return 130
    finally:
        write(args.out, about, tallies, complete, began)
        console.note(str(args.out))
    return int(not all(tally.held for tally in tallies.values()))


def summary(tally: Tally) -> str:
    broken = [f"{kind}: {count}" for kind, count in tally.broken.items() if count]
    told = [f"{tally.tried} tried", *(broken or ["nothing broken"])]
    return ", ".join(told + [f"skipped: {reason} ({count})" for reason, count in tally.skipped.items()])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer attacks, about five minutes")
    parser.add_argument("--only", nargs="+", metavar="SECTION", help=f"some of {', '.join([*SECTIONS, *GROUPS])}")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000), help="of all attacks (drawn)")
    parser.add_argument("--count", type=int, help="things to try in every section, instead of its own number")
    parser.add_argument("--replay", metavar="SECTION:SEED", help="make one attack again")
    parser.add_argument("-o", "--out", type=Path, help="results/torture.json, or build/torture.json if not the whole")
    args = parser.parse_args()
    whole = not (args.quick or args.only or args.count)
    args.out = args.out or ROOT / ("results" if whole else "build") / "torture.json"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    mark, folder = secrets.token_hex(8), Path(tempfile.mkdtemp(prefix="resnets-torture-"))
    for name in ("tmp", "bin"):
        (folder / name).mkdir()
    (folder / "bin" / "npm").write_text("#!/bin/sh\nexit 1\n")  # which would go and fetch
    (folder / "bin" / "npm").chmod(0o755)
    env = environment(folder, mark)
    try:
        return replay(args.replay, folder, env) if args.replay else torture(args, folder, env)
    except UserError as error:
        print(f"torture: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        end_marked(mark)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
