"""Kill a training with SIGKILL at random moments, again and again, and compare its end with that of one left alone.

    python benchmarks/resume.py --kills 20

Each start is a process of its own, `python -m resnets train ...` on one thread. The moments are drawn over the whole
life of a process: while it imports, reads its checkpoint, trains, logs, writes. Both runs must end with the same bytes
of weights and the same metrics; speed and memory are the only lines that may differ. Writes results/bench/resume.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import safetensors.numpy

from resnets.atomic import write_atomically
from resnets.runs import Run, find, provenance

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("images_per_second", "memory")


def command(args: argparse.Namespace, out: Path) -> list[str]:
    words = [sys.executable, "-m", "resnets", "train", args.net, "--data", args.data, "--recipe", args.recipe]
    words += ["--length", f"{args.steps}it", "--ema", "0.99", "--validation", "200", "--curve", "--quiet"]
    words += ["--log-every", "5", "--checkpoint-every", "0", "--device", "cpu", "--out", str(out)]
    return words


def start(args: argparse.Namespace, out: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command(args, out), env=environment, stdout=subprocess.DEVNULL, text=True)


def step_of(out: Path) -> int | None:
    """The step of the newest checkpoint."""
    steps = [int(path.name.split("-")[1]) for path in out.glob("*/checkpoints/step-*.safetensors")]
    return max(steps, default=None)


def preserve_state(args: argparse.Namespace, out: Path) -> tuple[float, float]:
    """Train to the end: the seconds until the first step, and those of all steps."""
    began = time.monotonic()
    process = start(args, out)
    while process.poll() is None and not step_of(out):
        time.sleep(0.01)
    first = time.monotonic()
    if process.wait():
        sys.exit(f"the preserve_state run failed with code {process.returncode}")
    return first - began, time.monotonic() - first


def disturbed(args: argparse.Namespace, out: Path, startup: float, steps: float) -> list[dict[str, Any]]:
    """Train with a kill after a drawn time, as often as asked, and then to the end; a record of every process."""
    draw = random.Random(args.seed)
    attempts: list[dict[str, Any]] = []
    for left in range(args.kills, -1, -1):
        done = (step_of(out) or 0) / args.steps
        longest = startup + 1.6 * steps * (1 - done) / (left + 1)
        wait = draw.uniform(0, longest) if draw.random() < 0.2 else draw.uniform(0.8 * startup, longest)
        began = time.monotonic()
        process = start(args, out)
        try:
            process.wait(wait if left else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        record = {"seconds": round(time.monotonic() - began, 2), "code": process.returncode, "step": step_of(out)}
        attempts.append(record)
        print(f"{len(attempts):3d}  {'killed' if process.returncode else 'finished'} after {record['seconds']:6.2f} s, "
              f"code {process.returncode}, newest checkpoint {record['step']}", flush=True)  # fmt: skip
        if process.returncode != -signal.SIGKILL:
            break
    return attempts


def weights(run: Run) -> str:
    """The hash of the names and bytes of all tensors; the order in the file's header is free."""
    digest = hashlib.sha256()
    for name, array in sorted(safetensors.numpy.load_file(run.weights).items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def metrics(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in MEASURED} for line in run.metrics()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--net", default="preresnet20")
    parser.add_argument("--data", default="synthetic:2048")
    parser.add_argument("--recipe", default="cifar-quick")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "resume.json")
    args = parser.parse_args()

    began, origin = time.monotonic(), provenance()
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder) / "whole", Path(folder) / "cut"
        startup, steps = preserve_state(args, whole)
        print(f"preserve_state: {startup:.1f} s until the first step, {steps:.1f} s for {args.steps} steps", flush=True)
        attempts = disturbed(args, cut, startup, steps)
        (one,), (other,) = find(whole), find(cut)
        hashes = weights(one), weights(other)
        lines = metrics(one), metrics(other)
        results = one.result, other.result

    kills = sum(attempt["code"] == -signal.SIGKILL for attempt in attempts)
    verdict = {
        "kills": kills,
        "same_weights": hashes[0] == hashes[1],
        "same_metrics": lines[0] == lines[1],
        "same_result": results[0] == results[1] is not None,
    }
    ok = kills >= args.kills and all(verdict.values())
    print(f"{kills} kills, {len(lines[0])} lines of metrics, weights {hashes[0][:16]} and {hashes[1][:16]}: "
          f"{'the same to the last bit' if ok else 'NOT THE SAME'}")  # fmt: skip
    told = {
        "what": "a training killed with SIGKILL at random moments and resumed, against one left alone",
        "ok": ok,
        **verdict,
        "net": args.net,
        "data": args.data,
        "steps": args.steps,
        "weights_sha256": hashes[0],
        "metrics_lines": len(lines[0]),
        "seconds": round(time.monotonic() - began, 1),
        "preserve_state": {"startup_seconds": round(startup, 2), "steps_seconds": round(steps, 2)},
        "attempts": attempts,
        "training": shlex.join(["python", *command(args, Path("OUT"))[1:]]),
        **origin,
        "command": shlex.join(["python", "benchmarks/resume.py", *sys.argv[1:]]),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.out, (json.dumps(told, indent=1) + "\n").encode())
    print(f"written: {args.out}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
