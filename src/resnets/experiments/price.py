"""What rows cost: multiply-adds, the same on every machine, and about how long cores work on them.

`reproduce --dry-run` measures this machine instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from resnets.analysis.complexity import complexity
from resnets.chain import NetworkSpec
from resnets.experiments.plan import Job
from resnets.training.estimate import normalize_spec

# One core of an EPYC, by the CPU time of training steps of nets of 5 to 1001 layers at `day` and `hour`: most rows take
# between 0.7 and 1.6 times as long.
_RATE = 100e9  # multiply-adds a second
_LAYER = 0.35e-3  # seconds of a layer in a training step besides, which narrow layers spend most of their time in
_BACKWARD = 2  # times the multiply-adds of a forward pass: the gradients of the inputs and of the weights


@dataclass(frozen=True)
class Price:
    multiply_adds: float = 0.0  # of convolutions and linear layers, as the papers count
    seconds: float = 0.0  # of one core

    @property
    def hours(self) -> float:
        """On two cores."""
        return self.seconds / 2 / 3600

    def __add__(self, other: Price) -> Price:
        return Price(self.multiply_adds + other.multiply_adds, self.seconds + other.seconds)

    def __mul__(self, runs: int) -> Price:
        return Price(self.multiply_adds * runs, self.seconds * runs)


def price_job(job: Job) -> Price:
    """One run of a row on CIFAR: training, its tests, and the runs that it learns from or begins with."""
    images, tests = job.steps * job.recipe.batch, 1
    if job.budget.curve:
        tests += images // job.source.images
    forward = _count(normalize_spec(job.spec), job.side)
    products = ((1 + _BACKWARD) * images * job.pixels + tests * job.source.test_images) * forward
    own = Price(products, products / _RATE + job.steps * job.spec.depth * _LAYER)
    return sum((price_job(one) for one in job.before), own)


@lru_cache
def _count(spec: NetworkSpec, side: int) -> int:
    return complexity(spec, side).multiply_adds
