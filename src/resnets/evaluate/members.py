"""Networks that see the views of pictures, alone or several together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from resnets.errors import one_of
from resnets.evaluate.views import Views

AVERAGES = ("softmax", "logits")
_PIXELS = 32 * 224 * 224  # in a batch, so that large views come in small ones


@dataclass(frozen=True)
class Member:
    """A network, how it is run, and how it sees a picture."""

    scores: Callable[[Tensor], Tensor]
    normalize: Callable[[Tensor], Tensor]
    views: Views
    device: torch.device | str = "cpu"

    def answers(self, pictures: Sequence[Image.Image], average: str) -> Tensor:
        """For each picture the mean over its views: of probabilities, or of the scores before softmax."""
        shaped: dict[tuple[int, int], list[tuple[int, Tensor]]] = defaultdict(list)
        counts = torch.zeros(len(pictures), 1)
        for i, picture in enumerate(pictures):
            for view in self.views.views(picture):
                shaped[view.size].append((i, tensor(view)))
                counts[i] += 1
        sums: Tensor | None = None
        for (width, height), group in shaped.items():
            most = max(1, _PIXELS // (width * height))
            for start in range(0, len(group), most):
                owners, views = zip(*group[start : start + most], strict=True)
                found = self._run(torch.stack(views), average)
                sums = found.new_zeros(len(pictures), found.shape[1]) if sums is None else sums
                sums.index_add_(0, torch.tensor(owners), found)
        assert sums is not None  # there is a picture, and every picture has a view
        return sums / counts

    def _run(self, views: Tensor, average: str) -> Tensor:
        x = self.normalize(views.to(self.device)).contiguous(memory_format=torch.channels_last)
        scores = self.scores(x).double().cpu()
        return scores.softmax(1) if average == "softmax" else scores


def probabilities(members: Sequence[Member], pictures: Sequence[Image.Image], average: str = "softmax") -> Tensor:
    """The probability of each class for each picture, float64, averaged over the views and the networks."""
    if average not in AVERAGES:
        raise one_of("average", average, AVERAGES)
    mean = torch.stack([member.answers(pictures, average) for member in members]).mean(0)
    return mean if average == "softmax" else mean.softmax(1)


def tensor(picture: Image.Image) -> Tensor:
    """uint8 (C, H, W)."""
    array = np.array(picture)
    return torch.from_numpy(array).permute(2, 0, 1) if array.ndim == 3 else torch.from_numpy(array)[None]
