"""Broken files of weights: ours, torch's of both forms, packages of TensorFlow.js, and files of class names."""

from __future__ import annotations

import io
import json
import random
import shutil
import tarfile
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import resnets
from tests.weights.keras_graph import Maker
from tools.torture.command import run
from tools.torture.mutation import broken_json, mutate, near_front, odd_json
from tools.torture.pictures import encoded, smooth

THIN = ("--network", "resnet18", "--widths", "4,8,8,8", "--num-classes", "10")
CLASSES = [f"class {i}" for i in range(10)]


def split_header(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the tensors behind it."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_header(header: Any, tensors: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def our_file(folder: Path) -> bytes:
    """A file of ours with everything that it can say about itself."""
    net = resnets.create("preresnet20", widths=(4, 8, 8), blocks=1, num_classes=10, seed=0)
    words = {
        "classes": CLASSES,
        "preprocessing": {"mean": [0.5] * 3, "std": [0.25] * 3, "normalize": "channel", "crop": 32, "resize": 32},
        "provenance": {"source": "made up", "sha256": "0" * 64},
    }
    path = folder / "ours.safetensors"
    resnets.save_weights(net, path, metadata={key: json.dumps(value) for key, value in words.items()})
    return path.read_bytes()


def with_odd_words(data: bytes, draw: random.Random) -> bytes:
    """A file of ours that says odd things about itself."""
    header, tensors = split_header(data)
    words = header["__metadata__"]
    key = draw.choice(sorted(words))
    try:
        words[key] = json.dumps(odd_json(json.loads(words[key]), draw))
    except ValueError:
        words[key] = str(odd_json(words[key], draw))
    return with_header(header, tensors)


def torch_file(content: Any, legacy: bool = False) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


class Weights:
    """One broken file of weights for one command that reads such files."""

    def __init__(self, folder: Path) -> None:
        self.ours = our_file(folder)
        net = resnets.create("resnet18", widths=(4, 8, 8, 8), num_classes=10, seed=0)
        theirs = folder / "theirs.safetensors"
        resnets.save_weights(net, theirs, format="torchvision")
        self.safetensors = theirs.read_bytes()
        state = safetensors.torch.load(self.safetensors)
        wrapped = {"state_dict": {f"module.{key}": value for key, value in state.items()}, "epoch": 3}
        self.torch = [torch_file(state), torch_file(wrapped), torch_file(state, True), torch_file(wrapped, True)]
        self.picture = encoded(smooth(40, 40))
        (folder / "p.jpg").write_bytes(self.picture)
        for words in (["predict", folder / "p.jpg", "--weights"], ["export", "-o", folder / "o.onnx"]):
            run(*words, folder / "ours.safetensors")
        run("import", theirs, *THIN, "-o", folder / "o.safetensors")

    def attack(self, draw: random.Random, folder: Path) -> None:
        if draw.random() < 0.55:
            self._attack_ours(draw, folder)
        else:
            self._attack_theirs(draw, folder)

    def _attack_ours(self, draw: random.Random, folder: Path) -> None:
        path = folder / draw.choice(("net.safetensors", "net.pt", "net"))
        kind = draw.random()
        if kind < 0.6:
            path.write_bytes(with_odd_words(self.ours, draw))
        elif kind < 0.8:
            header, tensors = split_header(self.ours)
            path.write_bytes(with_header(odd_json(header, draw), tensors))
        else:
            path.write_bytes(near_front(self.ours, draw))
        (folder / "p.jpg").write_bytes(self.picture)
        run(*self._reading(draw, path))

    def _reading(self, draw: random.Random, path: Path) -> list[str | Path]:
        commands: list[list[str | Path]] = [
            ["predict", "p.jpg", "--weights", path, draw.choice(("--csv", "--json", "--ten-crop"))],
            ["predict", "p.jpg", "--weights", path],
            ["predict", "p.jpg", "--weights", path, "--cam", "cam.png"],
            ["info", path],
            ["info", path, "--json"],
            ["info", "preresnet20", "--widths", "4,8,8", "--blocks", "1", "--weights", path],
            ["eval", path, "--data", "synthetic:40"],
            ["eval", path],
            ["export", path, "-o", "out.onnx"],
            ["import", path, "-o", "out.safetensors"],
            ["analyze", path, "--data", "synthetic:40", "--batch", "4"],
            [
                "train", "preresnet20", "--widths", "4,8,8", "--blocks", "1", "--data", "synthetic:40", "--recipe",
                "cifar-finetune", "--length", "1it", "--batch", "8", "--quiet", "--out", "runs", "--weights", path,
            ],
        ]  # fmt: skip
        return draw.choice(commands)

    def _attack_theirs(self, draw: random.Random, folder: Path) -> None:
        path = folder / "theirs.pth"
        if draw.random() < 0.3:
            (folder / "classes.json").write_bytes(broken_json(self._names(draw), draw))
            path.write_bytes(self.safetensors)
            run("import", path, *THIN, "--classes", "classes.json", "-o", "out.safetensors")
            return
        if draw.random() < 0.3:
            header, tensors = split_header(self.safetensors)
            path.write_bytes(with_header(odd_json(header, draw), tensors))
        else:
            path.write_bytes(near_front(draw.choice((self.safetensors, *self.torch)), draw))
        words = draw.choice((["import", "-o", "out.safetensors"], ["eval", "--data", "synthetic:40"]))
        run(*words, path, *THIN)

    @staticmethod
    def _names(draw: random.Random) -> Any:
        pairs = {str(i): [f"n{i:08d}", name] for i, name in enumerate(CLASSES)}
        return draw.choice((CLASSES, pairs))


class Packages:
    """One broken package of TensorFlow.js for `import`."""

    def __init__(self, folder: Path) -> None:
        maker = Maker(widths=(4, 4, 4, 4), blocks=(1, 1, 1, 1), classes=7)
        self.model = maker.write(folder / "package" / "model")
        assets = folder / "package" / "assets"
        assets.mkdir()
        (assets / "labels.json").write_text(json.dumps({str(i): [f"n{i}", f"name {i}"] for i in range(7)}))
        self.package = folder / "package"
        run("import", self.package, "-o", folder / "out.safetensors")

    def attack(self, draw: random.Random, folder: Path) -> None:
        package = folder / "package"
        shutil.copytree(self.package, package)
        target = draw.choice((package / "model" / "model.json",) * 4 + tuple(sorted(package.rglob("*.*"))))
        data = target.read_bytes()
        target.write_bytes(broken_json(json.loads(data), draw) if target.suffix == ".json" else mutate(data, draw))
        source = draw.choice((package, package / "model", package / "model" / "model.json", folder / "package.tgz"))
        if source.suffix == ".tgz":
            data = packed(package)
            source.write_bytes(near_front(data, draw) if draw.random() < 0.4 else data)
        run("import", source, "-o", "out.safetensors")


def packed(package: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        tar.add(package, package.name)
    return file.getvalue()
