"""Broken files of results and analyses, for `report`."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tools.torture.command import run
from tools.torture.mutation import broken_json

RESULTS = Path(__file__).resolve().parents[2] / "results"


class Results:
    """A folder with one broken file among some good ones."""

    def __init__(self, folder: Path) -> None:
        kinds = ("hour/resnet*.json", "hour/p*.json", "cifar/*.json", "analysis/*/*.json", "imagenet/*.json")
        self.files = [sorted(RESULTS.glob(kind)) for kind in kinds]
        run("report", RESULTS / "hour", "-o", folder / "page.html")

    def attack(self, draw: random.Random, folder: Path) -> None:
        place = folder / "results"
        place.mkdir()
        files = [draw.choice(kind) for kind in self.files]
        bad = draw.choice(files)
        for number, path in enumerate(files):
            data = path.read_bytes()
            if path == bad:
                data = broken_json(json.loads(data), draw)
            if path == bad or draw.random() < 0.3:
                (place / f"{number}.json").write_bytes(data)
        run("report", place, "-o", "page.html")
