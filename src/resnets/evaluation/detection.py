"""`evaluate` and `predict` for detectors: mean average precision, and the objects in pictures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from resnets.data.annotations import open_annotated
from resnets.data.annotations.check import decode_as_described
from resnets.data.annotations.drawing import draw_boxes
from resnets.data.annotations.pictures import AnnotatedData, BoxedPictures, Truth
from resnets.data.bad_images import BadImages
from resnets.data.decode import BadImageError
from resnets.data.picture import look_at_file
from resnets.data.test_pictures import map_ahead
from resnets.detection.average_precision import Found
from resnets.detection.detector import FasterRCNN
from resnets.detection.score import DetectionScore, choose_metric, score_detections
from resnets.detection.testing import Testing, detect
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.threads import Threads
from resnets.errors import UserError
from resnets.evaluation.options import EvaluateOptions, PredictOptions
from resnets.progress import Progress
from resnets.recipe import is_boxed
from resnets.weights.detectors import open_detector

_ENGINES = ("auto", "plain", "frozen")


def evaluate_detectors(
    words: Sequence[Any], data: Any, options: EvaluateOptions, progress: Progress, warn: Callable[[str], None]
) -> DetectionScore:
    """The mean average precision of a detector, or of several as an ensemble."""
    return detect_all(words, data, options, progress, warn).score(options.metric)


@dataclass(frozen=True)
class Detected:
    """What detectors found in pictures, and what there is; `score` judges it by any metric."""

    truths: list[Truth]
    found: list[Found]
    classes: tuple[str, ...]
    usual: str  # the metric that belongs to the data
    context: dict[str, Any]
    nets: list[FasterRCNN]

    def score(self, metric: str | None = None) -> DetectionScore:
        score = score_detections(self.truths, self.found, self.classes, metric or self.usual)
        return score.with_context(self.context, self.nets)


def detect_all(
    words: Sequence[Any], data: Any, options: EvaluateOptions, progress: Progress, warn: Callable[[str], None]
) -> Detected:
    """Detect the objects in all test pictures, few of them in memory at a time."""
    _refuse_views(options)
    if options.normalize or options.precise_bn or options.network or options.source != "auto" or options.shift:
        raise UserError("--normalize, --precise-bn, --network, --source and --shift are for classifiers.")
    nets = [open_for_testing(word, options.engine, options.device) for word in words]
    _require_same_classes(nets)
    boxed = _open_boxes(nets[0], options.data if data is None else data, options.bad_boxes, warn)
    pictures = boxed.test or boxed.train
    testing, bad = make_testing(options), BadImages(options.bad_images, warn)
    kept, found = [], []
    with Threads(options.threads), progress.task(f"testing on {boxed.name}", len(pictures)) as advance:
        for index, pixels in _decode(pictures, bad):
            if pixels is not None:
                kept.append(index)
                found.append(detect(nets, pixels, testing))
            advance(1)
    if not kept:
        raise UserError(f"{boxed.name} has no picture that can be read.")
    context = {
        "network": nets[0].spec.to_dict(),
        **({"networks": [net.spec.to_dict() for net in nets]} if len(nets) > 1 else {}),
        "data": boxed.name,
        "digest": boxed.digest,
        "views": testing.describe(len(nets)),
        **({"skipped": len(bad.met)} if bad.met else {}),
    }
    usual = choose_metric(boxed.name, pictures.paths)
    return Detected([pictures.truth(i) for i in kept], found, boxed.classes, usual, context, nets)


def _refuse_views(options: EvaluateOptions | PredictOptions) -> None:
    if options.has_views:
        raise UserError("--crop, --ten-crop and --multi-scale are for classifiers; a detector has --sides.")


def open_for_testing(word: Any, engine: str, device: str) -> FasterRCNN:
    """A detector on a device, computed by an engine; one that is given as such is left as it is."""
    if engine not in _ENGINES:
        raise UserError(f"a detector is tested by engine {', '.join(_ENGINES)}, not {engine}.")
    keep_freed_memory()
    net = open_detector(word)
    net = copy.deepcopy(net) if net is word else net
    net = net.to(choose(device), memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    return net.prepare("plain" if engine == "plain" else "auto", "fast")


def _require_same_classes(nets: Sequence[FasterRCNN]) -> None:
    for other in nets[1:]:
        if other.classes != nets[0].classes:
            origins = [net.metadata.origin for net in (nets[0], other)]
            raise UserError(f"{origins[0]} and {origins[1]} find different classes: evaluate them separately.")


def _open_boxes(net: FasterRCNN, data: Any, bad_boxes: str, warn: Callable[[str], None]) -> AnnotatedData:
    what = data if data is not None else net.metadata.data
    if isinstance(what, AnnotatedData):
        if what.classes != net.classes:
            raise UserError(f"{what.name} has other classes than {net.metadata.origin}.")
        return what
    if what is None:
        raise UserError(
            f"say what to test {net.metadata.origin} on: --data voc:DIR, coco:JSON:DIR, yolo:DIR, csv:FILE."
        )
    if not is_boxed(str(what)):
        raise UserError(
            f"a detector is tested on boxes: --data voc:DIR, coco:JSON:DIR, yolo:DIR or csv:FILE, not {what}."
        )
    return open_annotated(str(what), classes=net.classes, bad_boxes=bad_boxes, warn=warn)


def make_testing(options: EvaluateOptions | PredictOptions) -> Testing:
    return Testing(
        sides=options.sides,
        mirror=options.mirror,
        refine=options.refine,
        nms=options.nms,
        score=options.least_score,
        most=options.most_boxes,
        proposals=options.proposals,
    )


def _decode(pictures: BoxedPictures, bad: BadImages) -> Iterator[tuple[int, np.ndarray | None]]:
    def look(index: int) -> np.ndarray | BadImageError:
        try:
            return np.array(decode_as_described(pictures.paths[index], pictures.sizes[index]))
        except BadImageError as error:
            return error

    ahead = map_ahead(look, range(len(pictures)), lambda found: getattr(found, "nbytes", 0))
    for index, found in enumerate(ahead):
        if isinstance(found, BadImageError):
            bad.judge(pictures.paths[index], str(found))
            yield index, None
        else:
            yield index, found


# --- predict ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DetectedObjects:
    """The objects in a picture, the best first, or why it has none (`fault`)."""

    file: str  # empty for a picture that was given as such
    labels: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()  # the names of `labels`
    scores: tuple[float, ...] = ()
    boxes: tuple[tuple[float, ...], ...] = ()  # left, top, right, bottom in pixels
    fault: str = ""

    def __str__(self) -> str:
        rows = [f"{name} {100 * score:.0f} %" for name, score in zip(self.classes, self.scores, strict=True)]
        return f"{self.file}: {self.fault or ', '.join(rows) or 'nothing'}"

    def draw(self, picture: Image.Image) -> Image.Image:
        """The picture with a frame, a name and a score for each object."""
        texts = [f"{name} {100 * score:.0f}" for name, score in zip(self.classes, self.scores, strict=True)]
        return draw_boxes(picture, self.boxes, self.labels, texts)


class DetectionPredictor:
    """A detector that is ready to see pictures."""

    def __init__(self, model: Any, options: PredictOptions) -> None:
        _refuse_views(options)
        self.net = open_for_testing(model, options.engine, options.device)
        self.testing, self.threads = make_testing(options), Threads(options.threads)

    def predict(self, pictures: Sequence[Path | Image.Image]) -> Iterator[DetectedObjects]:
        """In the order of the pictures; files are decoded ahead, some at a time."""
        stream = map_ahead(self._look, pictures, lambda found: getattr(found, "nbytes", 0))
        for picture, found in zip(pictures, stream, strict=True):
            file = "" if isinstance(picture, Image.Image) else str(picture)
            if isinstance(found, str):
                yield DetectedObjects(file, fault=found)
                continue
            with self.threads:
                yield self._name(file, detect([self.net], found, self.testing))

    def _look(self, picture: Path | Image.Image) -> np.ndarray | str:
        if isinstance(picture, Image.Image):
            return np.array(picture.convert("RGB"))
        try:
            return look_at_file(picture, 3, np.array)
        except UserError as error:
            return str(error)

    def _name(self, file: str, found: Found) -> DetectedObjects:
        labels = tuple(found.labels.tolist())
        names = tuple(self.net.metadata.name(label) for label in labels)
        return DetectedObjects(
            file, labels, names, tuple(found.scores.tolist()), tuple(map(tuple, found.boxes.tolist()))
        )
