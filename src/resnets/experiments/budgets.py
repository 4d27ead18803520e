"""Budgets, as data: how much of the papers' protocol is run, and what is scaled, by the depth of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
PAPER_BATCH = 128  # on CIFAR; on ImageNet twice that


@dataclass(frozen=True)
class Scale:
    """How rows of up to `layers` layers are scaled. None keeps what the papers have."""

    layers: int | None = None
    iterations: int | None = None  # warm-up and milestones keep their shares of the training
    batch: int | None = None  # of a row of 128; others, and all learning rates, in proportion
    side: int | None = None  # of the images; the padding is scaled with it
    units: int | None = None  # at most in a stage
    thinner: int = 1  # filters are divided by this
    seeds: int | None = None
    tested: int | None = None  # test images
    classes: int | None = None  # of ImageNet's
    recipe: tuple[tuple[str, Any], ...] = ()  # more fields, unscaled


@dataclass(frozen=True)
class Budget:
    name: str
    text: str
    seeds: int
    scales: tuple[Scale, ...]  # the first that reaches a row's depth is taken
    imagenet: Scale  # of all rows on ImageNet
    data: str | None = None  # instead of CIFAR
    curve: bool = False  # test after every epoch, to draw it
    fails: tuple[tuple[str, float], ...] = ()  # errors above which a run on that data counts as failed

    def limit(self, data: str, classes: int) -> float:
        """The error above which a run fails: by default nine tenths of the error of guessing."""
        return dict(self.fails).get(data, 0.9 * (100 - 100 / classes))


BUDGETS: dict[str, Budget] = {
    budget.name: budget
    for budget in (
        Budget(
            "paper",
            "the papers' protocol: on CIFAR 64,000 iterations, five runs, their median; on ImageNet 90 epochs, one run",
            seeds=5,
            scales=(Scale(),),
            imagenet=Scale(seeds=1),
            curve=True,
            fails=(("cifar10", 20.0),),
        ),
        Budget(
            "day",
            "half an hour a row of 110 layers on two cores: a tenth of the schedule, images of 16, then 24, then 32 "
            "pixels; 100 classes of ImageNet",
            seeds=1,
            scales=(  # docs/decisions/0025-day-budget.md
                Scale(
                    layers=164, iterations=6400,
                    recipe=(("warmup", "400it"), ("sizes", "16@0,24@0.6,32@0.85")),
                ),
                Scale(iterations=1600, batch=64, side=16, seeds=1, recipe=(("warmup", "160it"), ("milestones", ""))),
            ),
            imagenet=Scale(iterations=3000, batch=32, side=64, thinner=2, classes=100),
            curve=True,
        ),
        Budget(
            "hour",
            "about an hour a table on two cores: 1,000 iterations of batch 32, images of 16x16, half the filters; "
            "20 classes of ImageNet",
            seeds=2,
            scales=(  # docs/decisions/0007-hour-budget.md
                Scale(layers=164, iterations=1000, batch=32, side=16, thinner=2, recipe=(("warmup", "100it"),)),
                Scale(
                    iterations=300, batch=32, side=16, seeds=1, tested=2000,
                    recipe=(("warmup", "30it"), ("milestones", "")),
                ),
            ),
            imagenet=Scale(iterations=800, batch=16, side=64, thinner=4, classes=20),
        ),
        Budget(
            "smoke",
            "seconds: a few units, a few iterations, procedural images for CIFAR; shows that it runs and nothing else",
            seeds=2,
            scales=(Scale(iterations=8, batch=32, side=16, units=1, thinner=2),),
            imagenet=Scale(iterations=8, batch=4, side=64, units=1, thinner=4),
            data="synthetic:256",
        ),
    )
}  # fmt: skip
