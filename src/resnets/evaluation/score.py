"""Scores of a network on labelled images: error, confidence interval, confusion, mistakes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.nn import Network


@dataclass(frozen=True)
class Mistake:
    """An image whose first class is wrong."""

    image: int | str  # its number in the test set, or its file
    label: int  # the true class
    found: int  # the class that the network names first


@dataclass(frozen=True)
class ClassScore:
    """The images of one class."""

    name: str
    images: int
    wrong: int

    @property
    def error(self) -> float:
        """Error in per cent; NaN for a class without images."""
        return 100 * self.wrong / self.images if self.images else math.nan


@dataclass(frozen=True)
class Score:
    """How many of `images` a network got wrong, its mean cross-entropy on them, and where it went wrong.

    `confusion[i, j]` counts the images of class i for which the network names class j first; it and `mistakes` are
    there where `evaluate` was asked, and not in the scores of a training.
    """

    images: int
    wrong: int
    loss: float
    wrong5: int | None = None  # the true class is not among the first five, where there are more than five
    confusion: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    mistakes: tuple[Mistake, ...] = field(default=(), compare=False, repr=False)
    classes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    context: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # network, data, views, engine
    models: tuple[Network, ...] = field(default=(), compare=False, repr=False)  # that were evaluated

    @property
    def error(self) -> float:
        """Top-1 error in per cent."""
        return 100 * self.wrong / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the error in per cent."""
        return wilson(self.wrong, self.images)

    @property
    def top5(self) -> Score | None:
        """The top-5 score: an image is wrong if the true class is not among the first five."""
        return None if self.wrong5 is None else Score(self.images, self.wrong5, self.loss)

    @property
    def per_class(self) -> tuple[ClassScore, ...]:
        """The score of each class, in the order of the network's outputs."""
        if self.confusion is None:
            return ()
        counts, right = self.confusion.sum(1), self.confusion.diagonal()
        names = self.classes or tuple(map(str, range(len(counts))))
        return tuple(ClassScore(*row) for row in zip(names, counts.tolist(), (counts - right).tolist(), strict=True))

    def with_context(self, context: Mapping[str, Any], models: Sequence[Network] = ()) -> Score:
        return replace(self, context=context, models=tuple(models))

    def to_dict(self) -> dict[str, Any]:
        given = {"images": self.images, "wrong": self.wrong, "loss": self.loss}
        found = {**given, "error": self.error, "interval": list(self.interval)}
        if five := self.top5:
            found["top5"] = {"wrong": five.wrong, "error": five.error, "interval": list(five.interval)}
        return found

    def describe(self) -> list[str]:
        """Error, top-5 error and accuracy in words."""
        accuracy = f"top-1 accuracy {100 - self.error:.2f} %"
        if (five := self.top5) is None:
            return [str(self), accuracy]
        return [str(self), f"top-5 {five}", f"{accuracy}, top-5 accuracy {100 - five.error:.2f} %"]

    def __str__(self) -> str:
        low, high = self.interval
        return f"error {self.error:.2f} % (95 % interval {low:.2f} to {high:.2f}, {self.wrong} of {self.images} wrong)"


class Tally:
    """Counts right and wrong answers, batch by batch."""

    def __init__(self, num_classes: int) -> None:
        self.confusion = np.zeros((num_classes, num_classes), np.int64)
        self.images = self.wrong5 = 0
        self.loss = 0.0
        self.mistakes: list[Mistake] = []
        self.first = min(5, num_classes)

    def add(self, scores: Tensor, labels: Tensor, loss: float, names: Sequence[int | str]) -> None:
        """The class scores of some images, their labels, the sum of their losses, and their names."""
        found, labels = scores.argmax(1).cpu(), labels.cpu()
        np.add.at(self.confusion, (labels.numpy(), found.numpy()), 1)
        self.wrong5 += int((scores.topk(self.first).indices.cpu() != labels[:, None]).all(1).sum())
        for at in (found != labels).nonzero().flatten().tolist():
            self.mistakes.append(Mistake(names[at], int(labels[at]), int(found[at])))
        self.images += len(labels)
        self.loss += loss

    def score(self, classes: Sequence[str] = ()) -> Score:
        wrong5 = self.wrong5 if len(self.confusion) > self.first else None
        wrong, mean = len(self.mistakes), self.loss / max(self.images, 1)
        return Score(self.images, wrong, mean, wrong5, self.confusion, tuple(self.mistakes), tuple(classes))


def wilson(wrong: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, in per cent."""
    n, p, z = images, wrong / images, 1.959963984540054
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 100 * max(middle - half, 0.0), 100 * min(middle + half, 1.0)


def score_images(
    net: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    normalize: Callable[[Tensor], Tensor],
    *,
    classes: Sequence[str] = (),
    batch: int = 500,
    device: torch.device | str = "cpu",
) -> Score:
    """Score uint8 images, one view each, in eval mode; the network keeps its mode."""
    tally: Tally | None = None
    with eval_mode(net), torch.no_grad():
        for start in range(0, len(images), batch):
            x, y = normalize(images[start : start + batch].to(device)), labels[start : start + batch].to(device)
            out = net(x.contiguous(memory_format=torch.channels_last)).float()
            tally = tally or Tally(out.shape[1])
            tally.add(out, y, float(functional.cross_entropy(out, y, reduction="sum")), range(start, start + len(y)))
    return tally.score(classes) if tally else Score(0, 0, 0.0)


@contextlib.contextmanager
def eval_mode(net: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Put a network into eval mode, and back; other functions are left as they are."""
    if not isinstance(net, nn.Module):
        yield
        return
    training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(training)
