"""Faster R-CNN in the form of v1: shared layers, proposals, RoI pooling, the last stage once per region, two layers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from resnets.detection import boxes as box
from resnets.detection.backbone import Backbone, build_backbone
from resnets.detection.operators import align_regions, pool_regions
from resnets.detection.proposals import (
    LARGEST,
    Objects,
    ProposalNetwork,
    find_proposals,
    match_anchors,
    measure_proposal_loss,
    sample,
)
from resnets.detection.reference import Bins
from resnets.detection.regions import DEVIATIONS, choose_regions, measure_region_loss
from resnets.detector_spec import DetectorSpec
from resnets.engine.threads import follow, hold
from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD, Metadata

AT_ONCE = {"fast": 1 << 30, "lean": 32, "min": 8}  # regions that pass the last stage together, by memory mode
TESTED = 100  # the same in testing
LOSSES = ("rpn_score", "rpn_box", "class", "box")


@dataclass(frozen=True)
class Scaling:
    """How pictures are prepared: (x / 255 - mean) / std; shorter side `side`, longer side at most `longest`."""

    mean: tuple[float, ...] = IMAGENET_MEAN_STD[0]
    std: tuple[float, ...] = IMAGENET_MEAN_STD[1]
    side: int = 600
    longest: int = 1000

    def find_size(self, size: tuple[int, int], side: int | None = None) -> tuple[int, int]:
        """The width and height at which a picture of this width and height is seen."""
        wanted = side or self.side
        longest = self.longest if side is None else self.longest * wanted / self.side
        scale = min(wanted / min(size), longest / max(size))
        return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 (3, H, W) to float32."""
        mean, std = (torch.tensor(v, device=pixels.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return pixels.float().div_(255).sub_(mean).div_(std)


class Example(NamedTuple):
    """A picture to learn from."""

    image: Tensor  # (3, H, W), normalised
    objects: Objects
    key: int  # that its random numbers follow from
    path: str


@dataclass(frozen=True)
class Sampling:
    """What is sampled of each picture in training."""

    anchors: int = 256
    regions: int = 128
    positive: float = 0.25  # share of the regions


@torch.no_grad()
def _draw(*layers: tuple[nn.Conv2d | nn.Linear, float], generator: torch.Generator | None) -> None:
    """Weights from a normal distribution of these deviations; biases 0."""
    for layer, deviation in layers:
        layer.weight.normal_(0, deviation, generator=generator)
        layer.bias.zero_()  # type: ignore[union-attr]


class FasterRCNN(nn.Module):
    """A detector, as its spec says. In training its forward pass gives losses, in testing see `testing`.

    Class i of the data is score i; the background has the last score.
    """

    def __init__(self, spec: DetectorSpec, generator: torch.Generator | None = None) -> None:
        super().__init__()
        generator = generator or torch.Generator().manual_seed(0)
        self.spec = spec
        self.metadata = Metadata()
        self.scaling = Scaling()
        self.sampling = Sampling()
        self.memory = "fast"
        self.backbone: Backbone = build_backbone(spec.backbone, generator)
        self.rpn = ProposalNetwork(spec)
        features = spec.tail_channels * (2 if spec.context else 1)
        self.classifier = nn.Linear(features, spec.num_classes + 1)
        self.regressor = nn.Linear(features, 4 * spec.num_classes)
        self._initialize(generator)
        self.train()  # with BN fixed

    def _initialize(self, generator: torch.Generator) -> None:
        """The new layers as in Faster R-CNN: normal of 0.01, of 0.001 for the shifts of regions, biases 0."""
        layers = (self.rpn.conv, self.rpn.score, self.rpn.shift, self.classifier)
        _draw(*((layer, 0.01) for layer in layers), (self.regressor, 0.001), generator=generator)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.metadata.classes

    def prepare(self, engine: str, memory: str) -> FasterRCNN:
        """Choose how it is computed; see `Backbone.prepare`."""
        self.memory = memory
        self.backbone.prepare(engine, memory)
        return self

    def find_thread_dependence(self) -> str | None:
        """Why the bytes of a training step depend on the number of threads, or None if they do not.

        What the kernels do not compute, PyTorch does on one thread; all but a stem that is trained is small.
        """
        if self.backbone.kernels is None or next(self.parameters()).device.type != "cpu":
            return "PyTorch alone computes it"
        return None if self.backbone.frozen else "PyTorch runs the stem"

    def train(self, mode: bool = True) -> FasterRCNN:
        super().train(mode)  # BN of the backbone stays fixed
        self.backbone.train(mode)
        return self

    def extra_repr(self) -> str:
        return self.spec.name

    # --- what classifiers have ------------------------------------------------------------------

    def reset_classifier(self, num_classes: int, *, seed: int | None = None) -> None:
        """Replace the two layers behind the regions by new ones for this number of classes; keep the others."""
        spec, like = dataclasses.replace(self.spec, num_classes=num_classes), self.classifier.weight
        self.classifier = nn.Linear(self.classifier.in_features, num_classes + 1)
        self.regressor = nn.Linear(self.regressor.in_features, 4 * num_classes)
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        _draw((self.classifier, 0.01), (self.regressor, 0.001), generator=generator)
        for layer in (self.classifier, self.regressor):
            layer.to(like.device, like.dtype)
        self.spec, self.metadata = spec, dataclasses.replace(self.metadata, classes=(), folders=())

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        raise UserError("forward_stages is for classifiers; the shared map of a detector is net.look(image).")

    @property
    def transform(self) -> Any:
        raise UserError(
            f"{self.spec.name} is a detector, which reads pictures of any size by net.scaling; "
            "resnets.predict(net, pictures) prepares them."
        )

    # --- parts ----------------------------------------------------------------------------------

    def look(self, image: Tensor) -> Tensor:
        """The shared map (1, C, h, w) of a picture (3, H, W)."""
        if image.dim() != 3 or image.shape[0] != self.spec.in_channels or min(image.shape[1:]) < self.spec.min_size:
            least, channels = self.spec.min_size, self.spec.in_channels
            raise UserError(
                f"{self.spec.name} reads pictures ({channels}, height, width) of at least {least}x{least} pixels, not "
                f"{tuple(image.shape)}."
            )
        x = image[None].contiguous(memory_format=torch.channels_last)
        return self.backbone.run_shared(x)

    def propose(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, shifts and anchors of a shared map."""
        return self.rpn(self.backbone.read_for_proposals(x), self.backbone.kernels)

    def pool(self, x: Tensor, regions: Tensor) -> Tensor:
        """Regions (N, 4), in pixels of the picture, of the shared map of one picture."""
        numbered = torch.cat([regions.new_zeros(len(regions), 1), regions], 1)
        bins = Bins(self.spec.pool_size, 1 / self.spec.stride)
        return (pool_regions if self.spec.pool == "max" else align_regions)(x, numbered, bins)

    def describe(self, x: Tensor, regions: Tensor) -> Tensor:
        """The features (N, C) of regions: pooled, through the last stage, averaged; some at a time."""
        training = self.training and torch.is_grad_enabled()
        at_once = AT_ONCE[self.memory] if training else TESTED
        if len(regions) <= at_once:
            return self._describe(x, regions)
        run = partial(checkpoint, self._describe, use_reentrant=False) if training else self._describe
        return torch.cat([run(x, regions[i : i + at_once]) for i in range(0, len(regions), at_once)])

    def _describe(self, x: Tensor, regions: Tensor) -> Tensor:
        return self.backbone.run_tail(self.pool(x, regions))

    def judge(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, classes + 1) and shifts (N, classes, 4) of features."""
        return self.classifier(features), self.regressor(features).view(-1, self.spec.num_classes, 4)

    def describe_in_context(self, x: Tensor, regions: Tensor, size: tuple[int, int]) -> Tensor:
        """The features of regions, with that of the whole picture beside each if the spec says so."""
        if not self.spec.context:
            return self.describe(x, regions)
        whole = regions.new_tensor([[0.0, 0.0, size[1], size[0]]])
        features = self.describe(x, torch.cat([regions, whole]))
        return torch.cat([features[:-1], features[-1:].expand(len(regions), -1)], 1)

    # --- training -------------------------------------------------------------------------------

    def forward(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """The losses of pictures: means over pictures of `LOSSES`."""
        if self.find_thread_dependence() or torch.is_autocast_enabled("cpu"):
            hold()
        else:
            follow(("detect", *(example.image.shape for example in examples)))
        losses = [self._measure(example) for example in examples]
        return {name: torch.stack([loss[i] for loss in losses]).mean() for i, name in enumerate(LOSSES)}

    def _measure(self, example: Example) -> tuple[Tensor, ...]:
        """Approximate joint training: the proposals count as given, so no gradient passes through their corners."""
        image, objects, key, _ = example
        size, sampling = (image.shape[1], image.shape[2]), self.sampling
        x = self.look(image)
        scores, shifts, anchors = self.propose(x)
        labels, places = match_anchors(anchors, objects, size)
        chosen = sample(labels, sampling.anchors, 0.5, key, "anchors")
        targets = box.encode(objects.boxes[places[chosen.positive]], anchors[chosen.positive])
        proposal_losses = measure_proposal_loss(scores, shifts, chosen, targets)
        proposals, _ = find_proposals(scores.detach(), shifts.detach(), anchors, size, LARGEST[True])
        regions = choose_regions(
            proposals,
            objects,
            self.spec.num_classes,
            count=sampling.regions,
            share=sampling.positive,
            key=key,
        )
        features = self.describe_in_context(x, regions.boxes, size)
        region_losses = measure_region_loss(*self.judge(features), regions.labels, regions.targets)
        return *proposal_losses, *region_losses

    # --- testing --------------------------------------------------------------------------------

    def find_boxes(self, shifts: Tensor, regions: Tensor, size: tuple[int, int]) -> Tensor:
        """The boxes (N, classes, 4) of regions, inside the picture."""
        scaled = shifts * shifts.new_tensor(DEVIATIONS)
        return box.clip(box.decode(scaled, regions[:, None].expand_as(scaled)), size)


def build_detector(spec: DetectorSpec, *, seed: int = 0) -> FasterRCNN:
    """A detector with new weights."""
    return FasterRCNN(spec, torch.Generator().manual_seed(seed))


def estimate_head(spec: DetectorSpec, regions: int) -> int:
    """Bytes that the last stage keeps for the backward pass of this many regions."""
    side, kept = spec.pool_size, spec.shared_channels * spec.pool_size**2
    backbone: Any = spec.backbone
    if hasattr(backbone, "units"):
        for unit in backbone.units():
            if unit.stage == len(backbone.blocks) - 1:
                for conv in unit.convs:
                    side = math.ceil(side / conv.stride)
                    kept += conv.out * side**2
                kept += 2 * unit.out * side**2  # the shortcut and the sum
    else:
        kept += sum(width * side**2 for width in backbone.stages[-1])
    return 4 * regions * kept
