"""airbench94_muon.py of github.com/KellerJordan/cifar10-airbench on this CPU: `python -m benchmarks.airbench`.

The script is the user's own copy, named by AIRBENCH; it is read and never copied here. It is written for CUDA in half
precision, so a few of its expressions are replaced before it runs: device, precision, compilation and clock. Network,
recipe, augmentation, test views and what its clock counts stay as they are. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import import_torchvision
from resnets.data import load
from resnets.errors import UserError

REPLACEMENTS = (
    ("@torch.compile\n", "\n"),
    ("G.bfloat16()", "G.float()"),
    ('torch.device("cuda")', 'torch.device("cpu")'),
    ("self.images.half()", "self.images.float()"),
    ("mod.half()", "mod.float()"),
    ("torch.cuda.Event(enable_timing=True)", "Clock()"),
    ("torch.cuda.synchronize()", "None"),
    ("ceil(8 * len(train_loader))", "STEPS or ceil(8 * len(train_loader))"),
)


class Clock:
    """What the script knows of torch.cuda.Event. `total` is the time, in ms, of all spans that it asked for."""

    total = 0.0

    def record(self) -> None:
        self.now = time.perf_counter()

    def elapsed_time(self, other: Clock) -> float:
        span = 1e3 * (other.now - self.now)
        Clock.total += span
        return span


def read_script() -> tuple[Path, str]:
    """The path and the text of the script that AIRBENCH names."""
    named = os.environ.get("AIRBENCH", "")
    if not named:
        raise UserError(
            "AIRBENCH is not set: set it to the path of airbench94_muon.py, from "
            "https://github.com/KellerJordan/cifar10-airbench."
        )
    path = Path(named).expanduser().resolve()
    try:
        return path, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"AIRBENCH cannot be read ({error}); set it to the path of airbench94_muon.py.") from None


def adapt_to_cpu(code: str) -> str:
    """The script with its CUDA expressions replaced. A script that lacks one is not the one that is meant."""
    for old, new in REPLACEMENTS:
        if old not in code:
            raise UserError(f"the script of AIRBENCH has no {old.strip()!r}; it must be airbench94_muon.py.")
        code = code.replace(old, new)
    return code


def write_data(folder: Path, images: int | None) -> None:
    """CIFAR-10 from our cache as the files that the script writes itself: `images` of each set, by default all."""
    data = load("cifar10", None)
    sets = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    folder.mkdir()
    for name, (pixels, labels) in sets.items():
        tensors = torch.from_numpy(pixels[:images]).permute(0, 2, 3, 1).contiguous(), torch.from_numpy(labels[:images])
        kept = {"images": tensors[0], "labels": tensors[1].long(), "classes": list(data.classes)}
        torch.save(kept, folder / f"{name}.pt")


@contextlib.contextmanager
def enter_folder_with_data(images: int | None) -> Iterator[None]:
    """Work in a temporary folder where the script finds `cifar10/train.pt` and `cifar10/test.pt`."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder) / "cifar10", images)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def race(seed: int, steps: int | None = None, images: int | None = None) -> dict[str, Any]:
    """One training as the script does it: seconds by its own clock, and its error with its own six test views."""
    path, code = read_script()
    names: dict[str, Any] = {"__name__": "airbench", "Clock": Clock, "STEPS": steps}
    import_torchvision()  # which it imports
    program = compile(adapt_to_cpu(code), str(path), "exec")
    with enter_folder_with_data(images), contextlib.redirect_stdout(sys.stderr):
        arguments, sys.argv = sys.argv, [str(path)]  # it reads its own text
        try:
            exec(program, names)
        finally:
            sys.argv = arguments
        torch.manual_seed(seed)
        Clock.total = 0.0
        model = names["CifarNet"]().to(memory_format=torch.channels_last)
        accuracy = names["main"](seed, model)
    return {"seconds": Clock.total / 1e3, "error": round(100 * (1 - accuracy), 2)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.airbench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="steps of 2,000 images, for a look (200)")
    parser.add_argument("--images", type=int, help="images of each set, for a look (all)")
    args = parser.parse_args()
    try:
        print(json.dumps(race(args.seed, args.steps, args.images)))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
