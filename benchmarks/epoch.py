"""Does memory stay where it is over an epoch of as many files as ImageNet has?

    python -m benchmarks.epoch

Makes a tree of 1,000 class folders with 1,281,167 names of a few thousand small pictures (links, so that it fits on any
disk), indexes it and goes through one epoch of it as a training does, without the network. Memory is told at every
tenth of the epoch, of this process and of the decoders; pages that several share count in parts. Linux alone tells it.
Writes results/bench/epoch.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.results import begun
from resnets.atomic import write_atomically
from resnets.data.batches import FileBatches
from resnets.data.folder import open_folder
from resnets.recipe import RECIPES

ROOT = Path(__file__).resolve().parents[1]
CLASSES, PICTURES, TELLS = 1000, 2000, 10


def linked(root: Path, files: int) -> None:
    """A tree of so many names, each picture under some hundreds of them; file systems set bounds to that."""
    draw = np.random.default_rng(0)
    originals = root / "pictures"
    originals.mkdir()
    for k in range(PICTURES):
        pixels = draw.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels).resize((48, 40), Image.Resampling.BICUBIC)
        picture.save(originals / f"{k}.jpg", "JPEG")
    for place in range(CLASSES):
        folder = root / "tree" / f"n{place:08d}"
        folder.mkdir(parents=True)
        for k in range(place, files, CLASSES):
            os.link(originals / f"{k % PICTURES}.jpg", folder / f"{folder.name}_{k}.JPEG")


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def held(pid: int) -> int:
    """Bytes of a process in memory, its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def epoch(tree: Path, batch: int, decoders: int, side: int = 32) -> Iterator[dict[str, Any]]:
    """Memory before the index, after it, and along the epoch."""
    yield {"images": 0, "training": held(os.getpid()), "decoders": []}
    folder = open_folder(tree)
    yield {"images": 0, "training": held(os.getpid()), "decoders": []}
    recipe = dataclasses.replace(RECIPES["imagenet-aspect"], batch=batch)
    feed = FileBatches(folder, recipe, 0, torch.device("cpu"), slice(0, batch), side=side, workers=decoders)
    steps = len(folder.train) // batch
    told = {1 + round((steps - 1) * k / TELLS) for k in range(TELLS + 1)}
    try:
        for step in range(steps):
            feed.batch(step)
            if step + 1 in told:
                workers = [held(pid) for pid in children()]
                yield {"images": (step + 1) * batch, "training": held(os.getpid()), "decoders": workers}
    finally:
        feed.close()


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Memory along the epoch of a tree that is there only so long; each point is also printed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.tmp) as folder:
        print(f"making {args.files:,} names of {PICTURES:,} pictures", flush=True)
        linked(Path(folder), args.files)
        for point in epoch(Path(folder) / "tree", args.batch, args.decoders):
            sizes = " ".join(f"{size / 2**20:.1f}" for size in (point["training"], *point["decoders"]))
            print(f"{time.monotonic() - began:6.0f} s  {point['images']:9,} images  {sizes} MiB", flush=True)
            yield point


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_281_167, help="in the tree (1281167)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--decoders", type=int, default=1, help="worker processes (1)")
    parser.add_argument("--tmp", type=Path, help="a folder to make the tree in")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "epoch.json")
    args = parser.parse_args()
    told = begun("benchmarks.epoch")
    torch.set_num_threads(1)
    try:
        points = list(measured(args))
    except KeyboardInterrupt:  # the tree is gone again, and nothing is written
        return 130
    found = {"files": args.files, "batch": args.batch, "decoders": args.decoders, "points": points}
    write_atomically(args.out, (json.dumps({**found, **told}, indent=1) + "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
