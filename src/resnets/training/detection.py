"""Detection as a task: pictures with boxes, the four losses of Faster R-CNN, mean average precision."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from resnets.counter_rng import alternate, below, draws
from resnets.data.annotations.check import decode_as_described
from resnets.data.annotations.pictures import AnnotatedData, BoxedPictures, Truth
from resnets.data.bad_images import BadImages
from resnets.data.batch_order import BatchOrder
from resnets.data.decode import BadImageError
from resnets.data.decode_workers import decode_ahead, usual_workers
from resnets.data.images import SPLIT_SEED
from resnets.data.resampling import Pixels, resize_whole
from resnets.detection.anchors import choose_sizes
from resnets.detection.average_precision import Found
from resnets.detection.detector import (
    AT_ONCE,
    LOSSES,
    Example,
    FasterRCNN,
    Sampling,
    Scaling,
    build_detector,
    estimate_head,
)
from resnets.detection.proposals import Objects
from resnets.detection.score import choose_metric, score_detections
from resnets.detection.testing import Testing, detect
from resnets.detector_spec import DetectorSpec
from resnets.engine.system_memory import available
from resnets.errors import UserError
from resnets.evaluation.precise_bn import precise_bn
from resnets.progress import Progress, Silent
from resnets.recipe import Recipe
from resnets.training.distributed import Workers
from resnets.training.loop import NotFiniteError
from resnets.training.schedule import Schedule
from resnets.training.task import Setup, Task
from resnets.weights.detectors import Start, describe, fill_detector, save_detector

_FIT = 0.6  # of the available memory, that the last stage may take
_NORMED = 64  # pictures over which BN's statistics are computed for a network without weights
_LEAST_SCORE = 0.01  # of a detection that counts


class Request(NamedTuple):
    """A picture to decode."""

    path: str
    size: tuple[int, int]  # as its annotation says
    seen: tuple[int, int]  # width and height at which it is seen; (0, 0): as it is


class Decoded(NamedTuple):
    request: Request
    pixels: Pixels | None
    fault: str = ""


class ScaledPictures(Dataset[Decoded]):
    """Decodes whole pictures and scales them."""

    def __getitem__(self, request: Request) -> Decoded:
        try:
            picture = np.array(decode_as_described(request.path, np.array(request.size)))
        except BadImageError as bad:
            return Decoded(request, None, str(bad))
        return Decoded(request, resize_whole(picture, request.seen) if request.seen[0] else picture)


class Draw(NamedTuple):
    """What is random about a picture in an epoch."""

    picture: int
    side: int
    mirrored: bool
    key: int  # for the samples of anchors and regions


class Detection(Task):
    """A detector that finds objects of some classes and their boxes."""

    kind = "detection"
    numbers = {"loss": 1.0, **dict.fromkeys(LOSSES, 1.0)}  # noqa: RUF012
    network: DetectorSpec

    def __init__(
        self,
        network: DetectorSpec,
        data: AnnotatedData,
        *,
        start: Start | None = None,
        reading: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.network = dataclasses.replace(network, num_classes=data.num_classes)
        self.pictures, self.start, self.progress = data, start, progress or Silent()
        self.data, self.digest = data.name, data.digest
        self.weights = _hash_tensors(start.tensors) if start else ""
        given = dict(reading or {})
        warn: Callable[[str], None] = given.get("warn", lambda sentence: None)
        self.bad, self.workers = BadImages(given.get("bad_images", "error"), warn), given.get("workers")
        self.running = contextlib.ExitStack()
        self.next = -1
        self.ahead: Iterator[Decoded] = iter(())

    def count_examples(self, recipe: Recipe) -> int:
        return len(self.pictures.split(recipe.validation, SPLIT_SEED)[0])

    @property
    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """That of the weights, so that pictures look as they did when the backbone was trained."""
        return self.start.mean_std if self.start else (self.pictures.mean, self.pictures.std)

    def statistics(self, recipe: Recipe) -> str:
        return hashlib.sha256(json.dumps(self.mean_std).encode()).hexdigest()

    def scaling(self, recipe: Recipe) -> Scaling:
        """How a trained detector sees pictures: at the last of the sides that it was trained with."""
        return Scaling(*self.mean_std, recipe.detect_sides[-1], max(recipe.detect_longest, recipe.detect_sides[-1]))

    def open(self, setup: Setup) -> None:
        recipe = self.recipe = setup.recipe
        _refuse(recipe)
        self.seed, self.device, self.share = setup.seed, setup.device, setup.share
        train, held = self.pictures.split(recipe.validation, SPLIT_SEED)
        self.train_index = train
        self.stream = BatchOrder(len(train), recipe.batch, setup.seed)
        self.schedule = Schedule(recipe, len(train))
        tests = {"test": self.pictures.test} if self.pictures.test is not None else {}
        self.tests: dict[str, BoxedPictures] = {
            **({"validation": self.pictures.train.select(held)} if len(held) else {}),
            **tests,
        }
        self.splits = list(self.tests)
        self.step = 0
        if self.workers is None:
            self.workers = usual_workers(setup.device)

    def close(self) -> None:
        self.running.close()
        self.next = -1

    # --- the network ----------------------------------------------------------------------------

    def build(self, seed: int) -> FasterRCNN:
        net = build_detector(self.network, seed=seed)
        net.scaling = self.scaling(self.recipe)
        net.sampling = Sampling(self.recipe.rpn_batch, self.recipe.roi_batch, self.recipe.roi_positive)
        net.metadata = dataclasses.replace(net.metadata, classes=self.pictures.classes)
        if self.start is not None:
            fill_detector(net, self.start.tensors)
        if normed := self.recipe.precise_bn or (0 if self.start else _NORMED):
            precise_bn(net.backbone, self._plain(min(normed, len(self.train_index)), net.scaling))
        return net

    def _plain(self, number: int, scaling: Scaling) -> Iterator[Tensor]:
        """Training pictures without augmentation, one at a time, for BN's statistics."""
        for place in range(number):
            draw = Draw(int(self.train_index[place]), scaling.side, False, 0)
            pixels = self._find_good(ScaledPictures()[self._request(draw)], draw)[0].pixels
            assert pixels is not None
            yield scaling.normalize(torch.from_numpy(pixels).permute(2, 0, 1))[None]

    def prepare(self, net: nn.Module, engine: str, memory: str) -> nn.Module:
        assert isinstance(net, FasterRCNN)
        if engine == "compiled":
            raise UserError("a detector has no engine compiled; choose auto or plain.")
        return net.prepare(engine, memory)

    def choose_memory(self, recipe: Recipe, device: torch.device) -> str:
        """The fastest mode in which the regions of a picture fit."""
        room = available(device)
        for mode, at_once in AT_ONCE.items():
            if room is None or estimate_head(self.network, min(at_once, recipe.roi_batch)) <= _FIT * room:
                return mode
        return "min"

    def frozen(self, net: nn.Module, recipe: Recipe) -> list[nn.Module]:
        assert isinstance(net, FasterRCNN)
        return net.backbone.freeze_stages(recipe.freeze)

    def notices(self, net: nn.Module) -> list[str]:
        trained = sum(p.numel() for p in net.parameters() if p.requires_grad)
        whole = sum(p.numel() for p in net.parameters())
        frozen = self.recipe.freeze
        what = f"the stem and {frozen} stage{'s' if frozen > 1 else ''} are not trained (freeze)" if frozen else ""
        bn = "" if not any(isinstance(m, nn.BatchNorm2d) for m in net.modules()) else "BN is a fixed scale and offset"
        words = [word for word in (what, bn, f"{trained:,} of {whole:,} parameters are trained") if word]
        if self.start is None:
            words.append("the backbone begins without weights (--weights), which takes many more pictures to train")
        sizes = ", ".join(map(str, self.network.anchor_sizes))
        return [
            "; ".join(words) + ".",
            f"anchors of {sizes} pixels; pictures of a shorter side {self.recipe.detect_side}.",
        ]

    # --- batches --------------------------------------------------------------------------------

    def batch(self, step: int) -> list[Example]:
        if step != self.next:
            self.close()
            requests = (self._request(draw) for later in count(step) for draw in self._draw(later))
            self.ahead = self.running.enter_context(decode_ahead(ScaledPictures(), requests, self.workers or 0))
        self.next, self.step = step + 1, step
        return [self._make_example(*self._find_good(next(self.ahead), draw)) for draw in self._draw(step)]

    def _draw(self, step: int) -> Iterator[Draw]:
        """The pictures of this process's share of a batch. All random numbers follow from seed, epoch and picture."""
        sides = self.recipe.detect_sides
        for epoch, places in self.stream.batch(step, self.share):
            index = self.train_index[places.numpy()]
            chosen = below(draws("side", self.seed, epoch, index), len(sides))
            mirrored = self._mirror(epoch, index)
            keys = draws("detection", self.seed, epoch, index)
            for k, i in enumerate(index.tolist()):
                yield Draw(i, sides[int(chosen[k])], bool(mirrored[k]), int(keys[k]))

    def _mirror(self, epoch: int, index: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if self.recipe.flip == "alternate":
            return alternate(self.seed, epoch, index)
        random = draws("flip", self.seed, epoch, index) & np.uint64(1) != 0
        return random if self.recipe.flip == "random" else np.zeros(len(index), bool)

    def _request(self, draw: Draw) -> Request:
        pictures, scaling = self.pictures.train, self.scaling(self.recipe)
        width, height = (int(side) for side in pictures.sizes[draw.picture])
        seen = scaling.find_size((width, height), draw.side)
        return Request(pictures.paths[draw.picture], (width, height), seen)

    def _find_good(self, decoded: Decoded, draw: Draw) -> tuple[Decoded, Draw]:
        """A picture that was decoded; the next good one in the place of a bad one, if the policy allows it."""
        for _ in range(len(self.train_index)):
            if decoded.pixels is not None:
                return decoded, draw
            self.bad.judge(decoded.request.path, decoded.fault)
            place = int(np.searchsorted(self.train_index, draw.picture)) + 1
            draw = draw._replace(picture=int(self.train_index[place % len(self.train_index)]))
            decoded = ScaledPictures()[self._request(draw)]
        raise UserError(f"{self.data} has no picture that can be read.")

    def _make_example(self, decoded: Decoded, draw: Draw) -> Example:
        truth, (width, height) = self.pictures.train.truth(draw.picture), decoded.request.size
        across, down = decoded.request.seen[0] / width, decoded.request.seen[1] / height
        corners = truth.boxes * np.array([across, down, across, down])
        if draw.mirrored:
            corners[:, [0, 2]] = decoded.request.seen[0] - corners[:, [2, 0]]
        pixels = torch.from_numpy(decoded.pixels).to(self.device).permute(2, 0, 1)
        image = self.scaling(self.recipe).normalize(pixels.flip(2) if draw.mirrored else pixels)
        return Example(image, self._to_objects(truth, corners), draw.key, decoded.request.path)

    def _to_objects(self, truth: Truth, corners: npt.NDArray[np.float64]) -> Objects:
        """Difficult objects and crowds are neither learned nor taken for background."""
        boxes = torch.from_numpy(corners).float().to(self.device)
        counted = torch.from_numpy(~(truth.difficult | truth.crowd)).to(self.device)
        crowd = torch.from_numpy(truth.crowd).to(self.device)
        labels = torch.from_numpy(truth.labels).to(self.device)
        return Objects(boxes[counted], labels[counted], boxes[~counted & ~crowd], boxes[crowd])

    def loss(self, model: nn.Module, batch: Sequence[Example]) -> tuple[Tensor, dict[str, Tensor]]:
        losses: dict[str, Tensor] = model(batch)
        loss = torch.stack([losses[name].float() for name in LOSSES]).sum()
        if not torch.isfinite(loss):
            paths = ", ".join(example.path for example in batch[:4])
            raise NotFiniteError(f"the loss of {paths}", self.step, self.schedule.lr(self.step))
        return loss, {name: value.detach() for name, value in losses.items()}

    # --- scores ---------------------------------------------------------------------------------

    def score(self, model: nn.Module, split: str, workers: Workers) -> dict[str, Any]:
        """Each process tests its share of the pictures; all of them score all detections."""
        assert isinstance(model, FasterRCNN)
        pictures, training = self.tests[split], model.training
        share = range(len(pictures))[workers.share(len(pictures))]
        model.eval()
        found: list[tuple[int, Found]] = []
        progress = self.progress if workers.is_main else Silent()
        with progress.task(f"testing on {split}", len(share)) as advance:
            for index, decoded in self._decode(pictures, share):
                if decoded.pixels is None:
                    self.bad.judge(decoded.request.path, decoded.fault)
                else:
                    found.append((index, detect([model], decoded.pixels, Testing(score=_LEAST_SCORE))))
                advance(1)
        model.train(training)
        every = [pair for part in workers.gather(found) for pair in part]
        if not every:
            raise UserError(f"{self.data} has no picture to test on that can be read.")
        truths = [pictures.truth(index) for index, _ in every]
        score = score_detections(
            truths, [one for _, one in every], self.pictures.classes, choose_metric(self.data, pictures.paths)
        )
        return score.to_dict()

    def _decode(self, pictures: BoxedPictures, share: range) -> Iterator[tuple[int, Decoded]]:
        requests = [
            Request(pictures.paths[i], (int(pictures.sizes[i, 0]), int(pictures.sizes[i, 1])), (0, 0)) for i in share
        ]
        with decode_ahead(ScaledPictures(), requests, self.workers or 0) as stream:
            yield from zip(share, stream, strict=True)

    def logged(self, score: Mapping[str, Any]) -> dict[str, float]:
        return {} if score["map"] is None else {"map": score["map"]}

    # --- weights --------------------------------------------------------------------------------

    def header(self) -> dict[str, str]:
        return {}

    def save(self, net: nn.Module, path: Path, header: Mapping[str, str]) -> None:
        assert isinstance(net, FasterRCNN)
        save_detector(net, path, {**describe(net), **header})


def _refuse(recipe: Recipe) -> None:
    """Refuse fields that a detector has no use for, so that nobody takes them for being in effect."""
    usual = Recipe()
    for name in ("sizes", "label_smoothing", "jitter", "lighting", "whiten", "mirror", "shift", "side"):
        if getattr(recipe, name) != getattr(usual, name):
            raise UserError(f"{name} is for classifiers; a detector has no {name}.")
    if recipe.normalize != "channel":
        raise UserError("pictures with boxes are normalised by channel; leave normalize at channel.")


def resolve_anchors(recipe: Recipe, spec: DetectorSpec, data: AnnotatedData) -> tuple[Recipe, DetectorSpec]:
    """The sizes of the anchors as numbers: those of the recipe, or by the training boxes as the network sees them."""
    if recipe.anchor_sides:
        sizes = recipe.anchor_sides
    else:
        scaling = Scaling(side=recipe.detect_sides[-1], longest=max(recipe.detect_longest, recipe.detect_sides[-1]))
        roots = []
        for i in range(len(data.train)):
            width, height = (int(side) for side in data.train.sizes[i])
            seen = scaling.find_size((width, height))
            sides = data.train.truth(i).boxes[:, 2:] - data.train.truth(i).boxes[:, :2]
            roots += (np.sqrt(sides.prod(1)) * seen[0] / width).tolist()
        sizes = choose_sizes(np.array(roots))
    recipe = dataclasses.replace(recipe, anchor_sizes=",".join(map(str, sizes)))
    return recipe, dataclasses.replace(
        spec, anchor_sizes=sizes, pool_size=recipe.pool_size, num_classes=data.num_classes
    )


def _hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
