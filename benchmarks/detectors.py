"""Faster R-CNN in torchvision's own code, and ours: the same network, weights, anchors and numbers of regions.

torchvision has no C4 form by name, but its parts make one: `FasterRCNN` with the first stages of its ResNet below, RoI
pooling, and the last stage as the head. Its compiled operators are missing beside a CPU build of torch, so ours stand
in their place on both sides: NMS and RoI pooling. Anchors are ours too, as torchvision places its own elsewhere.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers import import_torchvision
from resnets.detection.anchors import make_shapes, place_anchors
from resnets.detection.detector import Example, FasterRCNN, build_detector
from resnets.detection.operators import pool_regions, suppress
from resnets.detection.proposals import LARGEST, NMS, Objects
from resnets.detection.reference import Bins
from resnets.detection.testing import Testing, detect
from resnets.detector_spec import DetectorSpec, detector_of
from resnets.engine import set_threads
from resnets.engine.allocator import keep_freed_memory
from resnets.nn import build as build_net
from resnets.weights.networks import to_peer

Work = Callable[[], object]
CLASSES = 20
LONGER = 4 / 3  # of a picture's sides


def describe(name: str, **fields: Any) -> DetectorSpec:
    """The detector with as many filters in its proposal network as torchvision's has."""
    spec = detector_of(name, num_classes=CLASSES, **fields)
    return detector_of(name, num_classes=CLASSES, rpn_width=spec.shared_channels, **fields)


# --- torchvision ------------------------------------------------------------------------------


class Anchors(nn.Module):
    def __init__(self, spec: DetectorSpec) -> None:
        super().__init__()
        self.spec, self.shapes = spec, make_shapes(spec.anchor_sizes, spec.anchor_ratios)

    def num_anchors_per_location(self) -> list[int]:
        return [self.spec.anchors]

    def forward(self, images: Any, maps: list[Tensor]) -> list[Tensor]:
        placed = place_anchors(self.shapes, *maps[0].shape[2:], self.spec.stride)
        return [placed] * len(images.image_sizes)


class Pool(nn.Module):
    """RoI pooling of the regions of each picture."""

    def __init__(self, bins: Bins) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, maps: dict[str, Tensor], boxes: list[Tensor], sizes: Any) -> Tensor:
        numbered = [torch.cat([b.new_full((len(b), 1), i), b], 1) for i, b in enumerate(boxes)]
        return pool_regions(next(iter(maps.values())), torch.cat(numbered), self.bins)


class Head(nn.Module):
    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor) -> Tensor:
        return self.stage(x).mean((2, 3))


def build_torchvision(ours: FasterRCNN, side: int, testing: Testing = Testing()) -> nn.Module:  # noqa: B008
    """torchvision's detector with the weights of ours, for pictures whose shorter side is `side`."""
    torchvision = import_torchvision()
    detection = importlib.import_module("torchvision.models.detection")
    boxes = importlib.import_module("torchvision.ops.boxes")
    boxes.nms = suppress
    misc = importlib.import_module("torchvision.ops.misc")
    spec, name = ours.spec, ours.spec.backbone.name
    body = getattr(torchvision.models, name)(weights=None, norm_layer=misc.FrozenBatchNorm2d)
    net = build_net(spec.backbone)  # type: ignore[arg-type]
    net.load_state_dict(ours.backbone.state_dict(), strict=False)
    state = {k: v for k, v in to_peer(net, "torchvision").items() if not k.startswith("fc.")}
    body.load_state_dict({k: v.clone() for k, v in state.items() if "num_batches" not in k}, strict=False)
    parts = [(part, getattr(body, part)) for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")]
    backbone = nn.Sequential(OrderedDict(parts))
    backbone.out_channels = spec.shared_channels  # type: ignore[assignment]
    predictor = detection.faster_rcnn.FastRCNNPredictor(spec.tail_channels, spec.num_classes + 1)
    model = detection.FasterRCNN(
        backbone,
        rpn_head=detection.rpn.RPNHead(spec.shared_channels, spec.anchors),
        box_head=Head(body.layer4),
        box_predictor=predictor,
        min_size=side,
        max_size=2 * side,
        rpn_pre_nms_top_n_train=LARGEST[True][0],
        rpn_post_nms_top_n_train=LARGEST[True][1],
        rpn_pre_nms_top_n_test=LARGEST[False][0],
        rpn_post_nms_top_n_test=testing.proposals,
        rpn_nms_thresh=NMS,
        box_score_thresh=testing.score,
        box_nms_thresh=testing.nms,
        box_detections_per_img=testing.most,
        box_batch_size_per_image=ours.sampling.regions,
        image_mean=list(ours.scaling.mean),
        image_std=list(ours.scaling.std),
    )
    model.rpn.anchor_generator = Anchors(spec)
    model.roi_heads.box_roi_pool = Pool(Bins(spec.pool_size, 1 / spec.stride))
    _copy_heads(ours, model)
    return model


@torch.no_grad()
def _copy_heads(ours: FasterRCNN, model: Any) -> None:
    """Their background has the first score, and its shifts are never read."""
    for mine, theirs in (
        (ours.rpn.conv, model.rpn.head.conv[0][0]),
        (ours.rpn.score, model.rpn.head.cls_logits),
        (ours.rpn.shift, model.rpn.head.bbox_pred),
    ):
        theirs.load_state_dict(mine.state_dict())
    predictor, classes = model.roi_heads.box_predictor, ours.spec.num_classes
    for leaf in ("weight", "bias"):
        scores, shifts = getattr(ours.classifier, leaf), getattr(ours.regressor, leaf)
        getattr(predictor.cls_score, leaf).copy_(torch.cat([scores[-1:], scores[:-1]]))
        getattr(predictor.bbox_pred, leaf)[:4].zero_()
        getattr(predictor.bbox_pred, leaf)[4:].copy_(shifts)
    assert predictor.bbox_pred.out_features == 4 * (classes + 1)


# --- what is timed ----------------------------------------------------------------------------


def build(job: Any) -> Work:
    """A training step, or the test of a picture, of random pixels with some boxes."""
    side = job.side or 600
    draw = torch.Generator().manual_seed(0)
    ours = build_detector(describe(job.net), seed=0)
    with torch.no_grad():  # boxes near their anchors, as those of a trained detector, so that NMS leaves 300 of them
        ours.rpn.shift.weight.div_(20)
    frozen = ours.backbone.freeze_stages(1)
    pixels = torch.randint(256, (side, round(side * LONGER), 3), generator=draw, dtype=torch.uint8)
    corner, sides = torch.rand(2, 6, 2, generator=draw) * side / 2
    boxes, labels = torch.cat([corner, corner + sides + 16], 1), torch.arange(6)
    if job.contestant == "torchvision":
        model = build_torchvision(ours, side)
        for part in ("conv1", "bn1", "layer1"):
            getattr(model.backbone, part).requires_grad_(False)
        image = pixels.permute(2, 0, 1).float() / 255
        if job.task == "detection":
            model.eval()
            return torch.inference_mode()(lambda: model([image]))
        losses = lambda: model([image], [{"boxes": boxes, "labels": labels + 1}])  # noqa: E731
        return _make_step(model, losses, fused=None)
    keep_freed_memory()
    set_threads(torch.get_num_threads())
    model = ours.to(memory_format=torch.channels_last)
    model.prepare("plain" if job.contestant == "plain" else "auto", "fast")
    model.scaling = type(model.scaling)(side=side, longest=2 * side)
    if job.task == "detection":
        array = pixels.numpy()
        model.eval()
        return lambda: detect([model], array)
    del frozen
    none = torch.zeros(0, 4)
    image = model.scaling.normalize(pixels.permute(2, 0, 1))
    example = Example(image, Objects(boxes, labels, none, none), 1, "")
    return _make_step(model, lambda: model([example]), fused=True)


def _make_step(model: nn.Module, losses: Callable[[], dict[str, Tensor]], fused: bool | None) -> Work:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 1e-5, 0.9, weight_decay=5e-4, fused=fused)
    model.train()

    def step() -> None:
        optimizer.zero_grad()
        torch.stack(list(losses().values())).sum().backward()
        optimizer.step()

    return step
