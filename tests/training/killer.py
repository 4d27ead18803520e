"""A script: for each job trains once preserve_state and once with kills at random moments, in processes of their own.

    python killer.py '[{"options": {...}, "out": DIR, "kills": 6, "signal": "SIGKILL", "seed": 0}, ...]'

torch is imported once, before the forks, so that a kill costs as little as the steps it throws away. Prints as JSON,
for each job, the folders of both runs, the moments of the kills and the exit code of every process.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # for tools, which are no part of the installed package

from tools.torture.training import FINISH, START, attempt


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
