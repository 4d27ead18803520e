"""Files that would run code if they were unpickled. None may: the worker looks for the file that they would write."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.torture.command import run
from tools.torture.pictures import encoded, smooth
from tools.torture.runs import TRAIN
from tools.torture.training import only_run
from tools.torture.weights import THIN

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Evil:
    """Unpickled, it calls a function."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __reduce__(self) -> Call:
        return self.call


def calls() -> list[Call]:
    """Ways to write the canary."""
    canary = os.environ["RESNETS_CANARY"]
    code = f"open({canary!r}, 'w').close()"
    return [
        (os.system, (f"touch '{canary}'",)),
        (exec, (code,)),
        (eval, (code,)),
        (open, (canary, "w")),
        (os.mkdir, (canary,)),
        (np.save, (canary, 0)),
        (torch.save, (0, canary)),
    ]


def torch_zip(data: bytes) -> bytes:
    """A torch file of the present form around any pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return file.getvalue()


def torch_legacy(data: bytes) -> bytes:
    """One of the form before that."""
    heads = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    return b"".join(pickle.dumps(head, 2) for head in heads) + data + pickle.dumps([], 2)


class Pickles:
    """One hostile pickle in one place where a file is read."""

    def __init__(self, folder: Path) -> None:
        assert run(*TRAIN).code == 0
        self.run = only_run(folder / "runs").path
        self.picture = encoded(smooth(40, 40))
        (folder / "p.jpg").write_bytes(self.picture)
        run("predict", folder / "p.jpg")

    def attack(self, draw: random.Random, folder: Path) -> None:
        evil = Evil(draw.choice(calls()))
        content = draw.choice(
            ([evil], {"state_dict": {"a": evil}}, {"a": torch.zeros(1), "b": evil}, evil, {"model": evil})
        )
        draw.choice((self._weights, self._weights, self._cifar, self._cache, self._run))(content, draw, folder)

    def _weights(self, content: Any, draw: random.Random, folder: Path) -> None:
        data = pickle.dumps(content, draw.choice((0, 1, 2, 2, 3, 4)))
        form = draw.randrange(5)
        if form == 0:
            data = torch_zip(data)
        elif form == 1:
            data = torch_legacy(data)
        elif form == 2:
            file = io.BytesIO()
            torch.save(content, file)
            data = file.getvalue()
        elif form == 3:
            data = pickle.dumps(content, 2) * 3
        path = folder / draw.choice(("a.pth", "a.safetensors", "a.th", "a"))
        path.write_bytes(data)
        (folder / "p.jpg").write_bytes(self.picture)
        commands: list[list[str | Path]] = [
            ["import", path, *THIN, "-o", "out.safetensors"],
            ["eval", path, *THIN, "--data", "synthetic:40"],
            ["predict", "p.jpg", "--weights", path],
            ["info", path],
            ["info", "resnet20", "--weights", path],
            [*TRAIN, "--weights", path],
            ["export", path, "-o", "out.onnx"],
        ]
        run(*draw.choice(commands))

    def _cifar(self, content: Any, draw: random.Random, folder: Path) -> None:
        place = folder / "cifar-10-batches-py"
        place.mkdir()
        rows = {"data": content, "labels": [0]} if draw.random() < 0.5 else content
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            (place / name).write_bytes(pickle.dumps(rows, draw.choice((0, 2, 4))))
        run("data", "fetch", "cifar10", "--dir", folder)

    def _cache(self, content: Any, draw: random.Random, folder: Path) -> None:
        """In the place of a data set that was kept."""
        old, os.environ["RESNETS_CACHE"] = os.environ["RESNETS_CACHE"], str(folder / "cache")
        (folder / "cache").mkdir()
        file = io.BytesIO()
        np.save(file, np.array([content], object), allow_pickle=True)
        (folder / "cache" / "cifar10.npy").write_bytes(draw.choice((file.getvalue(), pickle.dumps(content))))
        try:
            run("data", "fetch", "cifar10")
        finally:
            os.environ["RESNETS_CACHE"] = old

    def _run(self, content: Any, draw: random.Random, folder: Path) -> None:
        """In the place of a run's weights, and of its checkpoints under a name that fits."""
        place = folder / "runs" / self.run.name
        shutil.copytree(self.run, place)
        data = draw.choice((pickle.dumps(content, 2), torch_zip(pickle.dumps(content, 2))))
        if draw.random() < 0.5:
            (place / "final.safetensors").write_bytes(data)
            run("eval", place)
            return
        for path in (place / "checkpoints").iterdir():
            path.unlink()
        digest = hashlib.sha256(data).hexdigest()[:16]
        (place / "checkpoints" / f"step-00000004-{digest}.safetensors").write_bytes(data)
        (place / "result.json").unlink()
        run(*TRAIN)
