"""The sets that have a name."""

from __future__ import annotations

from resnets.data.cifar import CIFAR10, CIFAR100
from resnets.data.fashion import FASHION_MNIST

DATASETS = {known.name: known for known in (CIFAR10, CIFAR100, FASHION_MNIST)}
