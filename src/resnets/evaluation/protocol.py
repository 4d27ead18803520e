"""The error of one network or of several together on labelled pictures, by one of the papers' protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from resnets.errors import UserError, one_of
from resnets.data.test_crops import Crop, MultiScale, TenCrop, Views, parse_crop
from resnets.evaluation.ensemble import AVERAGES, Member, batches, probabilities
from resnets.evaluation.labelled_images import Labelled
from resnets.evaluation.score import Score
from resnets.metadata import Preprocessing


@dataclass(frozen=True)
class Protocol:
    """The views that were asked for; a file's own crop where none was."""

    crop: str | None = None
    ten_crop: bool = False
    multi_scale: tuple[int, ...] | None = None
    average: str = "softmax"

    def __post_init__(self) -> None:
        if self.multi_scale and (self.crop or self.ten_crop):
            raise UserError("--multi-scale tests whole pictures; leave out --crop and --ten-crop.")
        if self.average not in AVERAGES:
            raise one_of("average", self.average, AVERAGES)
        if self.crop:
            parse_crop(self.crop)

    @property
    def asked(self) -> bool:
        return bool(self.crop or self.ten_crop or self.multi_scale)

    def views(self, usual: Preprocessing) -> Views:
        if self.multi_scale:
            return MultiScale(self.multi_scale)
        crop = parse_crop(self.crop) if self.crop else Crop(usual.crop, usual.resize)
        return TenCrop(crop.side, crop.shorter) if self.ten_crop else crop


def assess(
    members: Sequence[Member],
    pictures: Labelled,
    *,
    average: str = "softmax",
    advance: Callable[[int], None] = lambda steps: None,
) -> Score:
    """Top-1 and top-5 errors and the cross-entropy of the averaged probabilities; few pictures in memory at a time."""
    count, wrong, wrong5, loss = 0, 0, 0, 0.0
    stream = pictures.seen([member.views for member in members])
    for batch in batches(stream, lambda pair: pair[0].bytes):
        count += len(batch)
        labels = torch.tensor([label for _, label in batch])
        found = probabilities(members, [seen for seen, _ in batch], average)
        first = found.topk(min(5, found.shape[1])).indices
        wrong += int((first[:, 0] != labels).sum())
        wrong5 += int((first != labels[:, None]).all(1).sum())
        loss -= float(found.gather(1, labels[:, None]).clamp_min(1e-300).log().sum())
        advance(len(batch))
    if not count:
        raise UserError(f"{pictures.name} has no picture that can be read.")
    return Score(count, wrong, loss / count, wrong5)
