"""One contestant in a process of its own: `python -m benchmarks.worker JOB`, a job as JSON.

Allocator settings belong to a process, so contestants cannot share one. The worker builds its contestant, warms it up
and says that it is ready; then each line that it reads is a request for one timed round. Between rounds it waits in a
read. Every answer is one line of JSON; `reason` in it says why there is nothing to measure.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

ENOUGH = 0.3  # seconds of a round, in which quick work is repeated
SLOW = 5.0  # seconds of work that one run warms up


def peak() -> int | None:
    """The largest resident memory of this process so far, in bytes."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def why(error: Exception) -> str:
    """An error as one short sentence."""
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and missing != "resnets":
        return f"{missing} is not installed"
    words = str(error).strip().splitlines() or [""]
    return words[0] if type(error).__name__ == "UserError" else f"{type(error).__name__}: {words[0]}"


def serve(job: dict[str, Any], requests: TextIO, answers: TextIO) -> None:
    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    clock = time.perf_counter
    try:
        import torch

        from benchmarks.contestants import Job, build, foretold

        if job["task"] == "step":  # the first optimizer would import it: seconds that are no part of building a net
            import torch._dynamo
        expected = foretold(Job(**job))
        began = clock()
        work = build(Job(**job))
        built = clock()
        work()
        first = clock() - built
        repeats = 1
        if first < SLOW:
            again = clock()
            work()
            repeats = max(1, math.ceil(ENOUGH / (clock() - again)))
        told = {"build": built - began, "first": first, "repeats": repeats, "threads": torch.get_num_threads()}
        answer(**told, **({"foretold": expected} if expected else {}))
        for _ in requests:
            began = clock()
            for _ in range(repeats):
                work()
            answer(seconds=(clock() - began) / repeats, peak=peak())
    except Exception as error:
        answer(reason=why(error))


def main() -> None:
    with suppress(OSError):  # where memory runs out, this process goes, not its neighbours
        Path("/proc/self/oom_score_adj").write_text("1000")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    serve(json.loads(sys.argv[1]), sys.stdin, answers)


if __name__ == "__main__":
    main()
