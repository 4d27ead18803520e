"""`predict`: the likeliest classes of pictures, a few pictures in memory at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from resnets.data.picture import look_at_file, pictures_below
from resnets.data.test_pictures import PictureViews, map_ahead, size_of_views
from resnets.engine.threads import Threads
from resnets.errors import UserError
from resnets.evaluation.detection import DetectionPredictor
from resnets.evaluation.ensemble import Member, batches, probabilities
from resnets.evaluation.evaluate import make_member
from resnets.evaluation.options import PredictOptions
from resnets.nn import Network
from resnets.options import takes
from resnets.weights.detectors import is_detector
from resnets.weights.models import Model, open_model
from resnets.weights.pretrained import DEFAULT, index

Picture = str | os.PathLike[str] | Image.Image


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of a picture with their probabilities, or why it has none (`fault`)."""

    file: str  # empty for a picture that was given as such
    labels: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()  # the names of `labels`
    probabilities: tuple[float, ...] = ()
    fault: str = ""

    def __str__(self) -> str:
        rows = [f"{name} {100 * p:.1f} %" for name, p in zip(self.classes, self.probabilities, strict=True)]
        return f"{self.file}: {self.fault or ', '.join(rows)}"


@takes(PredictOptions)
def predict(model: Model | None, pictures: Picture | Sequence[Picture], *, options: PredictOptions) -> list[Any]:
    """The likeliest classes of pictures: files, folders of files, or PIL images.

    The results are `Prediction`s; of a detector `DetectedObjects`.

    `model` is what `load` takes; None is the small network for CIFAR-10 in the package. A picture that cannot be read
    has a `fault` instead of classes.

    >>> resnets.predict("preresnet20.cifar10", ["cat.jpg"])[0].classes[0]
    """
    given = [pictures] if isinstance(pictures, str | os.PathLike | Image.Image) else list(pictures)
    return list(open_predictor(model, options).predict(find_pictures(given)))


def open_predictor(model: Any, options: PredictOptions) -> Predictor | DetectionPredictor:
    """What recognises pictures, or finds objects in them if the model is a detector."""
    return DetectionPredictor(model, options) if is_detector(model) else Predictor(model, options)


class Predictor:
    """A network that is ready to recognise pictures."""

    def __init__(self, model: Model | None, options: PredictOptions) -> None:
        options.refuse_for_classifiers()
        if model is None and DEFAULT not in index():
            raise UserError("name the network to use: --weights, with a file of weights or a run's folder.")
        self.net: Network = open_model(DEFAULT if model is None else model)
        self.options = options
        self.threads = Threads(options.threads)
        self.member: Member = make_member(self.net, options)

    def predict(self, pictures: Sequence[Path | Image.Image]) -> Iterator[Prediction]:
        """In the order of the pictures; files are decoded ahead, some at a time."""
        stream = zip(pictures, map_ahead(self._look, pictures, size_of_views), strict=True)
        for batch in batches(stream, lambda pair: size_of_views(pair[1])):
            seen = [found for _, found in batch if isinstance(found, PictureViews)]
            with self.threads:
                ranked = iter(list(self._rank(seen)) if seen else ())
            for picture, found in batch:
                file = "" if isinstance(picture, Image.Image) else str(picture)
                yield Prediction(file, fault=found) if isinstance(found, str) else Prediction(file, *next(ranked))

    def _look(self, picture: Path | Image.Image) -> PictureViews | str:
        if isinstance(picture, Image.Image):
            return PictureViews(picture.convert("L" if self.net.spec.in_channels == 1 else "RGB"), [self.member.views])
        try:
            return look_at_file(
                picture, self.net.spec.in_channels, lambda image: PictureViews(image, [self.member.views])
            )
        except UserError as error:
            return str(error)

    def _rank(
        self, pictures: Sequence[PictureViews]
    ) -> Iterator[tuple[tuple[int, ...], tuple[str, ...], tuple[float, ...]]]:
        table = probabilities([self.member], pictures, self.options.average)
        best = table.topk(min(self.options.top, table.shape[1]))
        for labels, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            yield tuple(labels), tuple(map(self.net.metadata.name, labels)), tuple(values)


def find_pictures(given: Sequence[Picture]) -> list[Path | Image.Image]:
    """The files that were named, and in folders those that are named as pictures."""
    return [found for picture in given for found in _expand(picture)]


def _expand(picture: Picture) -> list[Path | Image.Image]:
    if isinstance(picture, Image.Image):
        return [picture]
    if re.match(r"[a-z]+://", os.fspath(picture)):
        raise UserError(f"{picture} is an address on the web: download the picture and give its file.")
    path = Path(picture)
    if not path.is_dir():
        return [path]
    files: list[Path | Image.Image] = list(pictures_below(path))
    if not files:
        raise UserError(f"{path} has no pictures in it.")
    return files
