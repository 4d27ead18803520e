"""A script: for each job trains once undisturbed and once with kills at random moments, in processes of their own.

    python killer.py '[{"options": {...}, "out": DIR, "kills": 6, "signal": "SIGKILL", "seed": 0}, ...]'

torch is imported once, before the forks, so that a kill costs as little as the steps it throws away. Prints as JSON,
for each job, the folders of both runs, the moments of the kills and the exit code of every process.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from resnets.training import session
from resnets.training.loop import Trainer

START, FINISH = -1, 10**9  # moments beside the steps: the process has begun, the last step is done


def start(options: dict[str, Any]) -> tuple[int, int]:
    """A process that trains; its id, and a pipe on which it tells each step that it begins."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        return pid, read
    code = 1
    try:
        step, finish = Trainer.step, Trainer.finish

        def told_step(self: Trainer, i: int) -> None:
            os.write(write, b"%d\n" % i)
            step(self, i)

        def told_finish(self: Trainer) -> None:
            os.write(write, b"%d\n" % FINISH)
            finish(self)

        Trainer.step, Trainer.finish = told_step, told_finish  # type: ignore[method-assign]
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
    with os.fdopen(pipe) as told:
        for line in told:
            if moment is not None and int(line) >= moment:
                time.sleep(jitter)
                os.kill(pid, number)
                struck = int(line)
                break
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (struck if code else None), code


def do(job: dict[str, Any]) -> dict[str, Any]:
    draw = random.Random(job["seed"])
    number, out = getattr(signal, job["signal"]), Path(job["out"])
    began = time.monotonic()
    _, code = attempt({**job["options"], "out": out / "whole"}, None, 0, number)
    assert code == 0, code
    steps = int(job["options"]["length"].removesuffix("it"))
    pace = (time.monotonic() - began) / steps
    for again in range(5):  # a process that was too fast for a kill spoils a try
        killed, codes, struck = out / f"killed-{again}", [], []
        inner = sorted(draw.randrange(steps - 2) for _ in range(job["kills"]))
        for moment in [START, *inner, FINISH, None]:
            place, code = attempt({**job["options"], "out": killed}, moment, draw.uniform(0, 2 * pace), number)
            struck += [] if place is None else [place]
            codes.append(code)
        if len(struck) >= job["kills"]:
            break
    return {"whole": str(out / "whole"), "killed": str(killed), "struck": struck, "codes": codes}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).zero_grad()  # imports for a second, once for all forks
    print(json.dumps([do(job) for job in json.loads(sys.argv[1])]))
