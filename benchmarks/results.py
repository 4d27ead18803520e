"""results/bench/SECTION.json: every repeat of every line, and where it comes from."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.fma import MULTIPLY_ADDS, count_executed
from benchmarks.lines import Line
from benchmarks.peers import same
from benchmarks.timing import load
from resnets.atomic import write_atomically
from resnets.runs import provenance
from tools.tables.records import BENCH

LIBRARIES = ("timm", "torchvision", "keras", "tensorflow", "jax", "onnxruntime", "openvino", "pillow")


def begun(module: str) -> dict[str, Any]:
    """Command, commit, machine, versions and time of what a module is about to measure."""
    return {**provenance(), "command": shlex.join(["python", "-m", module, *sys.argv[1:]])}


def origin() -> dict[str, Any]:
    """That of the benchmark, with the libraries it compares and what else the machine does."""
    told = begun("benchmarks")
    for name in LIBRARIES:
        try:
            told["versions"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            told["versions"][name] = None
    return {**told, "load_before": load()}


def describe(line: Line) -> dict[str, Any]:
    """The line as data; of its net also what a reader would have to look up."""
    told: dict[str, Any] = {"task": line.task, "net": line.net, "batch": line.batch}
    if line.net and not line.task.startswith("detection"):
        spec = same(line.net)
        told |= {"layers": spec.depth, "unit": spec.block, "order": spec.order}
    if "peak" in line.contestants:
        told |= {"multiply_adds": {"fast": count_executed(spec, line.batch), "peak": MULTIPLY_ADDS}}
    return told


def save(path: Path, line: Line, found: dict[str, Any], **about: Any) -> None:
    """Put a line into its section's file. Lines of earlier runs stay: each has its own origin and its own ratios."""
    told = BENCH.read(path) if path.exists() else {"lines": {}}
    contestants = {name: _rounded(values) for name, values in found.items()}
    told["lines"][line.name] = {**describe(line), "contestants": contestants, **about}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(told, indent=1) + "\n").encode())


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Times to the microsecond."""
    return {
        key: [round(v, 6) if isinstance(v, float) else v for v in value] if isinstance(value, list) else value
        for key, value in values.items()
    }
