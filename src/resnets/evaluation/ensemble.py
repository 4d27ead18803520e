"""Class probabilities of pictures, averaged over views and over the networks of an ensemble."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from PIL import Image
from torch import Tensor

from resnets.data.budget import room_for_a_network
from resnets.data.test_crops import Views
from resnets.data.test_pictures import PictureViews
from resnets.data.transform import Transform
from resnets.engine.inference import Runner
from resnets.errors import one_of
from resnets.view_options import AVERAGES

_PIXELS = 32 * 224 * 224  # in a batch, so that large views come in small ones
PICTURES = 32  # at a time
BYTES = 1 << 27  # of views, after which a batch of pictures ends

T = TypeVar("T")


def batches(stream: Iterator[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of PICTURES items; shorter lists where the items have more than BYTES together."""
    batch: list[T] = []
    for item in stream:
        batch.append(item)
        if len(batch) == PICTURES or sum(map(size, batch)) > BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(frozen=True)
class Member:
    """A network of an ensemble: its engine and its transform."""

    scores: Runner
    transform: Transform

    @property
    def views(self) -> Views:
        return self.transform.views

    def answers(self, pictures: Sequence[PictureViews], average: str) -> Tensor:
        """For each picture the mean over its views: of probabilities, or of the scores before softmax."""
        shaped: dict[tuple[int, int], list[tuple[int, Tensor]]] = defaultdict(list)
        counts = torch.zeros(len(pictures), 1)
        for i, picture in enumerate(pictures):
            for view in picture.views[self.views]:
                shaped[view.shape[1], view.shape[2]].append((i, view))
                counts[i] += 1
        sums: Tensor | None = None
        for (height, width), group in shaped.items():
            most = max(1, _PIXELS // (width * height))
            for start in range(0, len(group), most):
                owners, views = zip(*group[start : start + most], strict=True)
                found = self._run(torch.stack(views), average)
                sums = found.new_zeros(len(pictures), found.shape[1]) if sums is None else sums
                sums.index_add_(0, torch.tensor(owners), found)
        assert sums is not None  # there is a picture, and every picture has a view
        return sums / counts

    def _run(self, views: Tensor, average: str) -> Tensor:
        x = self.transform.normalize(views.to(self.scores.device)).contiguous(memory_format=torch.channels_last)
        scores = self.scores(x).double().cpu()
        return scores.softmax(1) if average == "softmax" else scores


def probabilities(
    members: Sequence[Member], pictures: Sequence[Image.Image | PictureViews], average: str = "softmax"
) -> Tensor:
    """The probability of each class for each picture, float64, averaged over the views and the networks."""
    if average not in AVERAGES:
        raise one_of("average", average, AVERAGES)
    ways = [member.views for member in members]
    seen = [picture if isinstance(picture, PictureViews) else PictureViews(picture, ways) for picture in pictures]
    with room_for_a_network():
        mean = torch.stack([member.answers(seen, average) for member in members]).mean(0)
    return mean if average == "softmax" else mean.softmax(1)
