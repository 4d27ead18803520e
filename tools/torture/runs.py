"""Run folders with broken files, for every command that reads runs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from resnets.training import session
from tools.torture.command import run
from tools.torture.mutation import broken_json, mutate, near_front, odd_json
from tools.torture.pictures import encoded, smooth
from tools.torture.training import only_run
from tools.torture.weights import our_file, with_odd_words

TRAIN = [
    "train", "preresnet20", "--widths", "4,8,8", "--blocks", "1", "--data", "synthetic:64", "--recipe", "cifar-paper",
    "--length", "6it", "--batch", "16", "--warmup", "0it", "--milestones", "4it", "--sizes", "16@0", "--log-every", "2",
    "--every", "3", "--validation", "16", "--quiet", "--out", "runs",
]  # fmt: skip


class Prepared:
    """Files that several sections attack with: our weights, a small picture and a finished run."""

    def __init__(self, folder: Path) -> None:
        self.ours = our_file(folder)
        self.picture = encoded(smooth(40, 40))
        assert run(*TRAIN).code == 0
        self.run = only_run(folder / "runs").path
        (folder / "p.jpg").write_bytes(self.picture)
        run("predict", folder / "p.jpg", "--ten-crop", "--weights", folder / "ours.safetensors")


class Runs:
    """One run with one broken file, for one command."""

    def __init__(self, folder: Path) -> None:
        assert run(*TRAIN).code == 0
        self.finished = only_run(folder / "runs").path
        for words in (["plot", "-o", "p.svg"], ["eval"], ["analyze"]):
            run(*words, self.finished)
        assert session  # imported here, and not in every fork

    def attack(self, draw: random.Random, folder: Path) -> None:
        place = folder / "runs" / self.finished.name
        shutil.copytree(self.finished, place)
        if unfinished := draw.random() < 0.4:
            for name in ("result.json", "final.safetensors", "curves.svg"):
                (place / name).unlink(missing_ok=True)
        self._break(place, draw)
        if unfinished and draw.random() < 0.5:
            run(*TRAIN)
        else:
            run(*self._reading(place, draw))

    @staticmethod
    def _break(place: Path, draw: random.Random) -> None:
        files = sorted(path for path in place.rglob("*") if path.suffix in (".json", ".jsonl", ".safetensors"))
        path = draw.choice([*files, place / "config.json", place / "metrics.jsonl"])
        data = path.read_bytes()
        if draw.random() < 0.05:
            path.unlink()
            if draw.random() < 0.5:
                path.mkdir()
        elif path.suffix == ".json":
            path.write_bytes(broken_json(json.loads(data), draw))
        elif path.suffix == ".jsonl":
            path.write_bytes(broken_lines(data, draw))
        elif path.name == "final.safetensors":
            path.write_bytes((with_odd_words if draw.random() < 0.6 else near_front)(data, draw))
        else:
            path.write_bytes(near_front(data, draw))

    @staticmethod
    def _reading(place: Path, draw: random.Random) -> list[str | Path]:
        commands: list[list[str | Path]] = [
            ["runs", "runs"],
            ["runs", "runs", "--json"],
            ["plot", place, "-o", "curves.svg"],
            ["results", place, "-o", "result.json"],
            ["eval", place, "--data", "synthetic:64"],
            ["eval", place],
            ["analyze", place, "--batch", "4"],
            ["analyze", place, "--batch", "4", "--along"],
            ["analyze", place, "--batch", "4", "--json", "--out", "analysis"],
            ["export", place, "-o", "net.onnx"],
            ["info", place / "final.safetensors"],
            [*TRAIN],
        ]
        return draw.choice(commands)


def broken_lines(data: bytes, draw: random.Random) -> bytes:
    """Change one line of JSON lines, or break the text."""
    lines = data.splitlines()
    if draw.random() < 0.3 or not lines:
        return mutate(data, draw)
    at = draw.randrange(len(lines))
    lines[at] = json.dumps(odd_json(json.loads(lines[at]), draw)).encode()
    return b"\n".join(lines) + b"\n"
