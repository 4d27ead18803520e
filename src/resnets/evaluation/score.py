"""The error of a network on images, with the interval that so many images allow."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Score:
    """How many of `images` a network got wrong, and its mean cross-entropy on them."""

    images: int
    wrong: int
    loss: float
    wrong5: int | None = None  # the true class is not among the first five, where that was asked

    @property
    def error(self) -> float:
        """Error in per cent."""
        return 100 * self.wrong / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the error in per cent."""
        return wilson(self.wrong, self.images)

    @property
    def top5(self) -> Score | None:
        """The same with a picture wrong only where the true class is not among the first five."""
        return None if self.wrong5 is None else Score(self.images, self.wrong5, self.loss)

    def to_dict(self) -> dict[str, Any]:
        given = {"images": self.images, "wrong": self.wrong, "loss": self.loss}
        found = {**given, "error": self.error, "interval": list(self.interval)}
        if five := self.top5:
            found["top5"] = {"wrong": five.wrong, "error": five.error, "interval": list(five.interval)}
        return found

    def __str__(self) -> str:
        low, high = self.interval
        return f"error {self.error:.2f} % (95 % interval {low:.2f} to {high:.2f}, {self.wrong} of {self.images} wrong)"


def wilson(wrong: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, in per cent."""
    n, p, z = images, wrong / images, 1.959963984540054
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 100 * max(middle - half, 0.0), 100 * min(middle + half, 1.0)


def evaluate(
    net: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    normalize: Callable[[Tensor], Tensor],
    *,
    batch: int = 500,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda done: None,
) -> Score:
    """One view of each uint8 image, in eval mode; a network is left in the mode it came in."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(images), batch):
            yield normalize(images[start : start + batch].to(device)), labels[start : start + batch].to(device)
            advance(min(start + batch, len(images)))

    return evaluate_batches(net, batches())


def evaluate_batches(net: Callable[[Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]]) -> Score:
    """One view of each image as the network reads it, with labels, on the network's device."""
    count, wrong, loss = 0, 0, 0.0
    with _testing(net), torch.no_grad():
        for x, y in batches:
            out = net(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x).float()
            count += len(y)
            wrong += int((out.argmax(1) != y).sum())
            loss += float(functional.cross_entropy(out, y, reduction="sum"))
    return Score(count, wrong, loss / max(count, 1))


@contextlib.contextmanager
def _testing(net: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Eval mode, for a network; the functions of `engine.inference` know no other."""
    if not isinstance(net, nn.Module):
        yield
        return
    training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(training)
