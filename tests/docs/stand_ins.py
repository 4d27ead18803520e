"""Small files and words that stand for those in the pages, so that their code runs in seconds.

A page speaks of `cat.jpg`, of CIFAR-10 and of a ResNet-50. A test makes small files of these names, and replaces the
words of `WORDS` before it runs the code.
"""

from pathlib import Path

import torch
from torch import nn

import resnets
from tests.detection.shapes import QUICK, TINY, write_shapes
from tests.docs.pages import ROOT
from tests.pictures import smooth, tree

SET = "synthetic:40"
WORDS = {  # in Python code
    '"cifar10"': f'"{SET}"',
    "preresnet12_w32": "preresnet20",
    'analyze("preresnet110"': 'analyze("preresnet20"',
    '("resnet110", "preresnet110")': '("resnet20", "preresnet20")',
    "epochs=5": "iterations=2",
    "epochs=1": "iterations=2",
    "epochs=20": "iterations=2",
    'recipe="cifar-quick"': 'recipe="cifar-quick", iterations=2',
    'recipe="finetune"': 'recipe="finetune", iterations=2',
    'length="20ep"': 'length="2it"',
    "seeds=(0, 1, 2), jobs=2": f'seeds=(0,), data="{SET}", iterations=2',
    'budget="hour"': 'budget="smoke"',
    "results/hour/": "results/smoke/",
    '"table1", budget="smoke")': '"table1", budget="smoke", rows="resnet110-cifar10", seeds=1)',
    '"resnet50.tv_in1k"': '"preresnet20.cifar10"',
    'create("resnet50", pretrained=True': 'create("preresnet20", pretrained=True',
    'create("preresnet50", pretrained="a1h_in1k")': 'create("preresnet20", pretrained="cifar10")',
    'hub.load("PATH/TO/resnets", "resnet50"': f'hub.load("{ROOT}", "preresnet20"',
    "faster_rcnn_resnet50": "faster_rcnn_resnet18",
    '"voc-paper", weights="resnet50.safetensors"': '"voc-paper", network=TINY, length="2it", **QUICK',
    '"detection-quick", weights="resnet50.safetensors"': '"detection-quick", network=TINY, length="2it", **QUICK',
    "per_class[14]": "per_class[1]",
    'resnets.create("vgg16", num_classes=20)': 'resnets.create("allcnn")',
    'resnets.create("googlenet", aux=False)': 'resnets.create("dsn")',
}
LINES = {  # in command lines
    "preresnet1001": "preresnet110",
}


def replace_words(code: str) -> str:
    for word, stand_in in WORDS.items():
        code = code.replace(word, stand_in)
    return code


def make_files(root: Path) -> None:
    """The files that pages name."""
    for name in ("cat.jpg", "street.jpg", "holiday/one.jpg", "holiday/two.jpg"):
        (root / name).parent.mkdir(exist_ok=True)
        smooth(48, 40).save(root / name)
    for split in ("train", "val"):
        tree(root / "pictures" / split, classes=("cat", "dog"), each=6)
    for folder in ("VOCdevkit", "cells"):
        write_shapes(root / folder, 6)
        lists = root / folder / "ImageSets" / "Main"
        (lists / "train.txt").rename(lists / "trainval.txt")
    torch.manual_seed(0)
    net = resnets.create("resnet20", resize="pad_both", seed=0)  # as akamaster
    for name in ("resnet20-12fca82f.th", "resnet20.th"):
        _save_as(net, root / name, "akamaster")
    net = resnets.create("resnet18", seed=0)
    for name in ("resnet50.pth", "theirs.pth"):
        _save_as(net, root / name, "torchvision")
    resnets.save_weights(net, root / "net.safetensors")
    (root / "imagenet-classes.json").write_text(str([f"class {i}" for i in range(1000)]).replace("'", '"'))
    run = resnets.train("preresnet20", data=SET, recipe="cifar-quick", iterations=2, quiet=True, out=root / "made")
    row = {"budget": "smoke", "rows": "resnet110-cifar10", "seeds": 1}
    resnets.reproduce("table1", **row, out=str(root / "made"), results=str(root / "results"))
    (root / "runs").mkdir()
    run.path.rename(root / "runs" / "NAME")


def _save_as(net: nn.Module, path: Path, library: str) -> None:
    """Weights as another library writes them."""
    from safetensors.torch import load_file

    resnets.save_weights(net, path.with_suffix(".tmp"), format=library)
    torch.save(load_file(path.with_suffix(".tmp")), path)


class Mine(nn.Module):
    """A module of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.layers(x))


def make_names() -> dict[str, object]:
    """The names that snippets use and other snippets, or a reader, define."""
    torch.manual_seed(0)
    pairs = [(torch.randn(3, 16, 16), i % 2) for i in range(8)]
    return {
        "__name__": "snippet",
        "resnets": resnets,
        "torch": torch,
        "Task": resnets.Task,
        "Callback": resnets.Callback,
        "Mine": Mine,
        "my_module": Mine(),
        "mine": resnets.Callback(),
        "train_set": pairs,
        "test_set": pairs,
        "images": torch.randn(1, 3, 32, 32),
        "picture": smooth(40, 40),
        "TINY": TINY,
        "QUICK": QUICK,
    }
