"""Count how often a command passes from one room of the package to another.

    python -m tools.walks

runs `train`, `eval --ten-crop` and one row of `reproduce` on small things, and records every call from a function of
one room to a function of another (`resnets.training` calls `resnets.data`). A pair of functions counts once, however
often the one calls the other. Modules outside the rooms (`resnets.spec`, `resnets.errors` ...) are not counted, and
neither are calls on import. Only the command line is used, so the same script measures older versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

WALKS = {
    "train": "train preresnet20 --data synthetic:256 --recipe cifar-quick --length 2it --batch 32 --out runs",
    "eval": "eval resnet18.safetensors --data pictures --ten-crop",
    "reproduce": "reproduce table1 --budget smoke --rows resnet110-cifar10 --seeds 1 --out rows --results results",
}
_MAKE = """
import resnets, numpy as np
from PIL import Image
from pathlib import Path
resnets.save_weights(resnets.create("resnet18", num_classes=2, seed=0), "resnet18.safetensors")
for name in ("cat", "dog"):
    folder = Path("pictures") / name
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(len(name)).integers(0, 255, (300, 260, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "a.jpg")
"""


class Tracer:
    """Calls between functions of the package, as (file, function) pairs."""

    def __init__(self, root: Path) -> None:
        self.root = str(root) + os.sep
        self.pairs: set[tuple[str, str]] = set()
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        callee = self._locate(frame)
        if callee is None:
            return
        self.files.add(callee.partition(":")[0])
        outer = frame.f_back
        while outer is not None and self._locate(outer) is None:  # calls through torch or the standard library
            outer = outer.f_back
        if outer is not None and outer.f_code.co_name != "<module>":
            self.pairs.add((str(self._locate(outer)), callee))

    def _locate(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        return f"{name.removeprefix(self.root)}:{frame.f_code.co_qualname}" if name.startswith(self.root) else None


def find_room(place: str) -> str | None:
    """The folder of the package that a function is in, if it is in one."""
    first, slash, _ = place.partition(os.sep)
    return first if slash else None


def trace(words: list[str]) -> dict[str, Any]:
    """Run a command in this process; the calls between its rooms."""
    import resnets
    from resnets.cli import main

    tracer = Tracer(Path(resnets.__file__).parent)
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        code = main(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    if code:
        raise SystemExit(code)
    between = [(a, b) for a, b in tracer.pairs if find_room(a) and find_room(b) and find_room(a) != find_room(b)]
    doors = Counter(f"{find_room(a)} -> {find_room(b)}" for a, b in between)
    return {"crossings": len(between), "files": len(tracer.files), "doors": dict(doors.most_common())}


def measure() -> dict[str, dict[str, Any]]:
    """Each command in its own process, in a folder that is removed afterwards."""
    found = {}
    root = str(Path(__file__).parents[1])
    trace = f"import json, sys; sys.path.insert(0, {root!r}); from tools import walks; "
    trace += "open(sys.argv[1], 'w').write(json.dumps(walks.trace(sys.argv[2:])))"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", _MAKE], cwd=folder, check=True)
        for name, command in WALKS.items():
            out, words = Path(folder) / f"{name}.json", command.split()
            run = [sys.executable, "-c", trace, str(out), *words]
            subprocess.run(run, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            found[name] = json.loads(out.read_text())
    return found


if __name__ == "__main__":
    for walk, counted in measure().items():
        print(f"{walk}: {counted['crossings']} crossings between rooms, {counted['files']} files")
        for door, times in counted["doors"].items():
            print(f"  {times:3}  {door}")
