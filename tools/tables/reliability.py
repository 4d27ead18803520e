"""The tables of docs/reliability.md, from results/torture.json, which `make torture` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.tables.performance import write_markdown

NOT_YET = "Not run yet: `make torture` attacks, and `make tables` puts here what it found."
BROKEN = {  # the keys of a section, and the heads of their columns
    "differing bytes": "bytes that differ",
    "wrong numbers": "wrong numbers",
    "crashes": "crashes",
    "tracebacks": "tracebacks",
    "hangs": "hangs",
    "code executed": "code executed",
    "over memory": "over 1 GiB",
    "unsafe output": "unsafe output",
    "left behind": "left behind",
}
ATTACKS = {  # sections, by what is done in them
    "kills": "trainings killed at random instants",
    "file-kills": "trainings killed at a file operation",
    "pictures": "broken pictures",
    "weights": "broken files of weights and of classes",
    "packages": "broken packages of TensorFlow.js",
    "runs": "runs with a broken file",
    "results": "broken files of results",
    "archives": "broken archives of data",
    "commands": "odd command lines",
    "injections": "hostile names",
    "pickles": "hostile pickles",
    "edits": "edited networks",
    "bombs": "files that unpack to gigabytes",
    "together": "processes at once, killed workers, full disks",
}
INPUTS = tuple(name for name in ATTACKS if name not in ("kills", "file-kills", "edits", "together"))
PROMISES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (  # a sentence, its sections, what must be 0
    ("A training that is killed at any moment and started again ends with the same bytes as one that was left alone.",
     ("kills", "file-kills", "together"), ("differing bytes",)),
    ("A broken file or a wrong word gets one sentence: no crash, no traceback, no part of a file left behind.",
     INPUTS, ("crashes", "tracebacks", "left behind")),
    ("Every input gets its answer within 20 seconds.", INPUTS, ("hangs",)),
    ("No file that is read runs code.", tuple(ATTACKS), ("code executed",)),
    ("No input under 20 MB takes more than 1 GiB of memory.", tuple(ATTACKS), ("over memory",)),
    ("A name in a file commands no terminal, no browser and no spreadsheet.",
     tuple(ATTACKS), ("unsafe output",)),
    ("An edited network computes what PyTorch computes, in every memory mode, frozen and as ONNX, or is refused.",
     ("edits",), ("wrong numbers", "crashes", "tracebacks")),
    ("Two trainings of one run, twelve starts into an empty cache, a killed worker or machine, a full disk: each ends "
     "with the right result or a sentence.", ("together",), tuple(BROKEN)),
)  # fmt: skip


def read(results: Path) -> dict[str, Any] | None:
    path = results / "torture.json"
    return json.loads(path.read_text()) if path.exists() else None


def write_promises(results: Path) -> str:
    """Each promise, how often it was tried, and how often it was broken."""
    found = read(results)
    if found is None:
        return NOT_YET
    rows = []
    for sentence, names, kinds in PROMISES:
        sections = [found["sections"][name] for name in names if name in found["sections"]]
        tried = sum(section["tried"] for section in sections)
        broken = sum(section.get(kind, 0) for section in sections for kind in kinds)
        rows.append([sentence, f"{tried:,}", f"{broken:,}", "not tried" if not tried else "no" if broken else "yes"])
    return write_markdown(["promise", "tried", "broken", "holds"], rows)


def write_attacks(results: Path) -> str:
    """Each section with its counts, what was skipped and why, and where the figures come from."""
    found = read(results)
    if found is None:
        return NOT_YET
    rows, skipped = [], []
    for name, what in ATTACKS.items():
        if section := found["sections"].get(name):
            counts = [f"{section.get(kind, 0):,}" for kind in BROKEN]
            rows.append([what, f"{section['tried']:,}", *counts, f"{section['most memory, MiB']:,}"])
            skipped += [f"Skipped ({what}, {count} times): {why}." for why, count in section["skipped"].items()]
    header = ["attacks", "tried", *BROKEN.values(), "most memory, MiB"]
    return "\n\n".join([write_markdown(header, rows), *skipped, describe_origin(found)])


def describe_origin(found: dict[str, Any]) -> str:
    whole = "" if found["complete"] else "; not the whole of it"
    machine = f"{found['machine']['cpu']} with {found['machine']['cores']} cores; torch {found['versions']['torch']}"
    commit = f"commit {(found['commit'] or 'unknown')[:10]}; {found['began'][:10]}"
    return f"*`{found['command']}`, seed {found['seed']}{whole}; {machine}; {commit}.*"


TABLES: dict[str, Callable[[Path], str]] = {"torture-promises": write_promises, "torture-attacks": write_attacks}
