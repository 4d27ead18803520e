"""A task that is no classification: a small network draws its images again, and says how far they are turned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.data.batch_order import BatchOrder
from resnets.recipe import Recipe
from resnets.runs import ModuleKey
from resnets.training.distributed import Workers
from resnets.training.task import Setup, Task


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.2)
        self.up = nn.ConvTranspose2d(6, 3, 4, stride=2, padding=1)
        self.turn = nn.Linear(6, 1)

    def forward(self, images: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        seen = [self.drop(functional.relu(self.norm(self.down(image[None])))) for image in images]
        return [self.up(x)[0] for x in seen], [self.turn(x.mean((2, 3)))[0, 0] for x in seen]


class Redraw(Task):
    """Images of different sizes as lists, two losses, and a score without an error."""

    kind = "redraw"
    network = ModuleKey("Autoencoder", "made by seed")
    numbers = {"loss": 1.0, "drawing": 1.0, "turning": 100.0}  # noqa: RUF012

    def __init__(self, count: int = 40) -> None:
        make = torch.Generator().manual_seed(0)
        sides = [8 + 4 * (i % 3) for i in range(count)]
        self.images = [torch.rand(3, side, side, generator=make) for side in sides]
        self.data = f"images:{count}"
        self.digest = hashlib.sha256(b"".join(image.numpy().tobytes() for image in self.images)).hexdigest()
        self.splits = ("validation", "test")

    def count_examples(self, recipe: Recipe) -> int:
        return len(self.images)

    def open(self, setup: Setup) -> None:
        self.order = BatchOrder(len(self.images), setup.recipe.batch, setup.seed)
        self.share = setup.share

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return Autoencoder()

    def batch(self, step: int) -> dict[str, list[Any]]:
        found = [(epoch, int(i)) for epoch, index in self.order.batch(step, self.share) for i in index]
        turns = [(epoch + i) % 4 for epoch, i in found]
        images = [torch.rot90(self.images[i], turn, (1, 2)) for (_, i), turn in zip(found, turns, strict=True)]
        return {"images": images, "turns": turns}

    def loss(self, model: nn.Module, batch: dict[str, list[Any]]) -> tuple[Tensor, Mapping[str, Tensor]]:
        drawn, turns = model(batch["images"])
        drawing = torch.stack([functional.mse_loss(a, b) for a, b in zip(drawn, batch["images"], strict=True)]).mean()
        turning = functional.mse_loss(torch.stack(turns), torch.tensor(batch["turns"], dtype=torch.float32))
        return drawing + 0.1 * turning, {"drawing": drawing.detach(), "turning": turning.detach()}

    def score(self, model: nn.Module, split: str, workers: Workers) -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            drawn, _ = model(self.images)
        found = [float(functional.mse_loss(a, b)) for a, b in zip(drawn, self.images, strict=True)]
        return {"distance": sum(found) / len(found), "each": found, "split": split}
