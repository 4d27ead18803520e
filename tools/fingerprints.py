"""Fingerprints of what the package computes, to compare before and after a change that should not change it.

    python -m tools.fingerprints -o before.json
    python -m tools.fingerprints --compare before.json

Seeded trainings on procedural images (weights, metrics, results), the scores of the pretrained networks, the outputs
of ONNX files, and `info --json`. Only the command line is used, so the same script measures other versions. Numbers
depend on the CPU and on torch: compare on one machine. OMP_NUM_THREADS is set to 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHORT = "--data synthetic:128 --length 3it --batch 32 --warmup 1it --milestones 2it --sizes 16@0 --log-every 1 --quiet"
TRAININGS = {
    "preresnet20 quick": "preresnet20 --recipe cifar-quick --data synthetic:128 --length 4it --batch 32 --quiet",
    "preresnet20 ema": f"preresnet20 {SHORT} --ema 0.9 --validation 32 --curve --micro-batch 16",
    "preresnet20 lean": f"preresnet20 {SHORT} --memory lean",
    "preresnet20 min": f"preresnet20 {SHORT} --memory min",
    "preresnet20 plain": f"preresnet20 {SHORT} --engine plain",
    "resnet56": f"resnet56 {SHORT}",
    "resnet56 gate": f"resnet56 {SHORT} --shortcut exclusive_gate:-6",
    "resnet56 scale": f"resnet56 {SHORT} --shortcut scale:0.5:1",
    "resnet56 dropout": f"resnet56 {SHORT} --shortcut dropout:0.5 --normalize pixel",
    "resnet56 bn after": f"resnet56 {SHORT} --order bn_after_add --resize project",
    "preresnet164": f"preresnet164 {SHORT}",
    "preresnet164 conv1x1": f"preresnet164 {SHORT} --shortcut conv1x1 --every 2",
    "plain20": f"plain20 {SHORT} --precise-bn 64 --flip alternate --nesterov",
}
NETWORKS = ("resnet20", "preresnet110", "preresnet1001", "resnet50", "plain34", "resnet110 --shortcut dropout:0.5")
CLOCK = ("images_per_second", "memory", "seconds")  # they differ each time


def collect(folder: Path) -> Iterator[tuple[str, Any]]:
    """A name and a fingerprint for each thing that is computed."""
    for name, words in TRAININGS.items():
        run("train", *words.split(), "--out", name.replace(" ", "-"), folder=folder)
        (path,) = (folder / name.replace(" ", "-")).iterdir()
        yield f"train {name}", {"run": path.name, **fingerprint_run(path)}
    for net in ("preresnet20.cifar10", "resnet20.cifar10"):
        yield f"eval {net}", json.loads(run("eval", net, "--data", "synthetic:64", "--json", folder=folder))
        yield f"onnx {net}", fingerprint_onnx(net, folder)
    for net in NETWORKS:
        yield f"info {net}", json.loads(run("info", *net.split(), "--json", folder=folder))


def run(*words: str, folder: Path) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "resnets", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"resnets {' '.join(words)}: {done.stderr}")
    return done.stdout


def fingerprint_run(path: Path) -> dict[str, Any]:
    import safetensors.numpy

    tensors = safetensors.numpy.load_file(path / "final.safetensors")
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].tobytes())
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]
    result = json.loads((path / "result.json").read_text())
    return {
        "weights": digest.hexdigest(),
        "metrics": hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest(),
        "result": {key: value for key, value in result.items() if key not in CLOCK},
    }


def fingerprint_onnx(net: str, folder: Path) -> str:
    import numpy as np
    import onnxruntime

    run("export", net, "--fold", "-o", "net.onnx", folder=folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), options, providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).standard_normal((2, 3, 32, 32), dtype=np.float32)
    return hashlib.sha256(session.run(None, {"images": images})[0].tobytes()).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fingerprints", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("-o", "--out", type=Path, help="write the fingerprints", metavar="FILE")
    parser.add_argument("--compare", type=Path, help="fingerprints of before", metavar="FILE")
    args = parser.parse_args()
    before = json.loads(args.compare.read_text()) if args.compare else {}
    found, differing = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, value in collect(Path(folder)):
            found[name] = json.loads(json.dumps(value))
            same = not args.compare or before.get(name) == found[name]
            differing += not same
            print(f"{name}: {'as before' if args.compare and same else 'taken' if same else 'DIFFERS'}", flush=True)
            if not same and isinstance(value, dict):
                keys = [key for key in found[name] if before.get(name, {}).get(key) != found[name][key]]
                print(f"  in {', '.join(keys)}")
    if args.out:
        args.out.write_text(json.dumps(found, indent=1))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
