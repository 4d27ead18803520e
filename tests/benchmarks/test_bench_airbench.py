"""The record recipe as a contestant: a small stand-in for the user's script, with the same places to replace."""

import json
import os
import sys

import numpy as np
import pytest
import torch

from benchmarks import airbench
from resnets.errors import UserError

STAND_IN = """
import sys
with open(sys.argv[0]) as f:
    code = f.read()
import os
from math import ceil
import torch
from torch import nn

@torch.compile
def double(G):
    return 2 * G.bfloat16()

class CifarLoader:
    def __init__(self, path, train):
        data = torch.load(os.path.join(path, "train.pt" if train else "test.pt"), map_location=torch.device("cuda"))
        self.images, self.labels, self.classes = data["images"], data["labels"], data["classes"]
        self.images = (self.images.half() / 255).permute(0, 3, 1, 2)

    def __len__(self):
        return len(self.images) // 2

class CifarNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        for mod in self.modules():
            mod.half()

    def forward(self, x):
        return double(self.layer(x.mean((2, 3))))

def main(run, model):
    train_loader, test_loader = CifarLoader("cifar10", True), CifarLoader("cifar10", False)
    total_train_steps = ceil(8 * len(train_loader))
    starter = torch.cuda.Event(enable_timing=True)
    ender = torch.cuda.Event(enable_timing=True)
    for step in range(total_train_steps):
        starter.record()
        model(train_loader.images[:2]).sum().backward()
        ender.record()
        torch.cuda.synchronize()
        print("ms", starter.elapsed_time(ender))
    assert model.layer.weight.dtype == test_loader.images.dtype == torch.float32
    return model(test_loader.images[:4]).argmax(1).eq(test_loader.labels[:4]).float().mean().item()

if __name__ == "__main__":
    raise SystemExit("200 runs")
"""


class Data:
    train_images = np.random.default_rng(0).integers(0, 256, (8, 3, 32, 32), np.uint8)
    train_labels = np.arange(8, dtype=np.int64) % 2
    test_images, test_labels, classes = train_images, train_labels, ("cat", "dog")


@pytest.fixture
def script(tmp_path, monkeypatch):
    path = tmp_path / "airbench94_muon.py"
    path.write_text(STAND_IN)
    monkeypatch.setenv("AIRBENCH", str(path))
    monkeypatch.setattr(airbench, "load", lambda name, folder: Data)
    monkeypatch.setattr(airbench, "import_torchvision", lambda: None)
    return path


@pytest.mark.parametrize(("steps", "seen"), [(3, 3), (None, 8 * 4)])
def test_the_script_runs_on_the_cpu_for_as_many_steps_as_asked(script, capfd, steps, seen):
    before, arguments = os.getcwd(), sys.argv
    found = airbench.race(0, steps)
    assert (os.getcwd(), sys.argv) == (before, arguments)
    assert found["seconds"] > 0
    assert found["error"] in (0, 25, 50, 75, 100)
    out, err = capfd.readouterr()
    assert out == ""
    spans = [float(line.split()[1]) for line in err.splitlines() if line.startswith("ms")]
    assert len(spans) == seen
    assert found["seconds"] == pytest.approx(sum(spans) / 1e3)


def test_the_data_are_those_that_the_script_would_write(script, tmp_path):
    airbench.write_data(tmp_path / "cifar10", 6)
    kept = torch.load(tmp_path / "cifar10" / "test.pt", weights_only=True)
    assert kept["images"].shape == (6, 32, 32, 3)
    assert torch.equal(kept["images"].permute(0, 3, 1, 2), torch.from_numpy(Data.test_images[:6]))
    assert (kept["labels"].tolist(), kept["classes"]) == ([0, 1] * 3, ["cat", "dog"])


def test_no_script_or_another_one_is_answered_in_a_sentence(script, monkeypatch, capsys):
    script.write_text("print('hello')")
    with pytest.raises(UserError, match=r"has no '@torch.compile'; it must be airbench94_muon\.py"):
        airbench.race(0, 1)
    script.unlink()
    with pytest.raises(UserError, match=r"cannot be read .* set it to the path of airbench94_muon\.py"):
        airbench.race(0, 1)
    monkeypatch.delenv("AIRBENCH")
    monkeypatch.setattr(sys, "argv", ["airbench"])
    assert airbench.main() == 2
    assert capsys.readouterr().err.startswith("AIRBENCH is not set: set it to the path of")


def test_one_line_of_json(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["airbench", "--steps", "1", "--seed", "3"])
    assert airbench.main() == 0
    assert set(json.loads(capsys.readouterr().out)) == {"seconds", "error"}
