"""A detector as an ONNX graph, from a normalised picture to boxes: proposals, regions and both NMS are inside.

Height and width stay open; the batch is one picture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from resnets.detection.average_precision import Found
from resnets.detection.boxes import LARGEST_GROWTH
from resnets.detection.detector import FasterRCNN
from resnets.detection.proposals import LARGEST, LEAST_SIDE, NMS
from resnets.detection.regions import DEVIATIONS
from resnets.detection.testing import Look, Testing, detect_in
from resnets.engine.folding import FrozenUnit, fold
from resnets.engine.onnx import Graph, need, write_model
from resnets.nn import Unit

_END = 2**31 - 1
_TESTING = Testing()
_ROUNDING = 1e-5  # of a score
_SHAPES = (160, 224), (224, 160), (192, 200)  # of pictures that are compared


class DetectorGraph(Graph):
    """Nodes for boxes. Boxes are (..., 4), and parts of them (..., 1)."""

    def whole(self, *values: int) -> str:
        return self.constant(torch.tensor(values, dtype=torch.long))

    def columns(self, x: str) -> list[str]:
        """The four columns of boxes or shifts."""
        names = [f"column_{len(self.nodes)}_{i}" for i in range(4)]
        self.nodes.append(self.onnx.helper.make_node("Split", [x], names, axis=-1))
        return names

    def read_size(self, x: str, axis: int, kind: str = "FLOAT") -> str:
        size = self.add("Gather", self.add("Shape", x), self.whole(axis), axis=0)
        return self.add("Cast", size, to=getattr(self.onnx.TensorProto, kind))

    def anchors(self, x: str, shapes: Tensor, stride: int) -> str:
        """Anchors around the pixels of a map, (N, 4)."""
        centres = []
        for axis in (2, 3):
            length = self.add("Squeeze", self.read_size(x, axis, "INT64"))
            zero, one = (self.constant(torch.tensor(n)) for n in (0, 1))
            steps = self.add("Cast", self.add("Range", zero, length, one), to=self.onnx.TensorProto.FLOAT)
            centres.append(self.add("Mul", self.add("Add", steps, self.constant(0.5)), self.constant(float(stride))))
        down, across = (self.add("Unsqueeze", c, self.whole(at)) for c, at in zip(centres, (1, 0), strict=True))
        nothing = self.constant(0.0)
        y = self.add("Add", down, self.add("Mul", across, nothing))
        x_ = self.add("Add", across, self.add("Mul", down, nothing))
        wide = [self.add("Unsqueeze", part, self.whole(2)) for part in (x_, y, x_, y)]
        middle = self.add("Unsqueeze", self.add("Concat", *wide, axis=2), self.whole(2))
        return self.add("Reshape", self.add("Add", middle, self.constant(shapes)), self.whole(-1, 4))

    def decode(self, shifts: str, anchors: str) -> str:
        left, top, right, bottom = self.columns(anchors)
        sides = self.add("Sub", right, left), self.add("Sub", bottom, top)
        half = self.constant(0.5)
        found = self.columns(shifts)
        corners: list[list[str]] = [[], []]
        for start, side, move, growth in zip((left, top), sides, found[:2], found[2:], strict=True):
            middle = self.add("Add", start, self.add("Mul", side, half))
            middle = self.add("Add", middle, self.add("Mul", move, side))
            bounded = self.add("Min", growth, self.constant(LARGEST_GROWTH))
            reach = self.add("Mul", self.add("Mul", self.add("Exp", bounded), side), half)
            corners[0].append(self.add("Sub", middle, reach))
            corners[1].append(self.add("Add", middle, reach))
        return self.add("Concat", *corners[0], *corners[1], axis=-1)

    def clip(self, boxes: str, images: str) -> str:
        height, width = (self.read_size(images, axis) for axis in (2, 3))
        most = self.add("Concat", width, height, width, height, axis=0)
        return self.add("Min", self.add("Max", boxes, self.constant(0.0)), most)

    def take(self, x: str, index: str) -> str:
        return self.add("Gather", x, index, axis=0)

    def best(self, scores: str, most: int) -> tuple[str, str]:
        """The best scores, in order, and their places."""
        count = self.add("Min", self.add("Shape", scores), self.whole(most))
        names = [f"best_{len(self.nodes)}", f"places_{len(self.nodes)}"]
        self.nodes.append(self.onnx.helper.make_node("TopK", [scores, count], names, axis=0))
        return names[0], names[1]

    def layers(self, module: nn.Module, x: str) -> str:
        """A layer or unit with BN folded."""
        if isinstance(module, Unit):
            return self.step(FrozenUnit(module), x)
        return self.steps(nn.Sequential(*fold(module)), x)


def write(net: FasterRCNN, about: Mapping[str, str], testing: Testing = _TESTING) -> bytes:
    """The model: `images` (1, 3, H, W) to `boxes` (N, 4) in pixels of the input, `labels` (N,) and `scores` (N,)."""
    graph = DetectorGraph(need("onnx", "onnx"))
    with torch.no_grad():
        x = "images"
        for module in (m for stage in net.backbone.shared for m in stage):
            x = graph.layers(module, x)
        regions = _add_proposals(graph, net, x, testing)
        probabilities, boxes = _add_regions(graph, net, x, regions)
        outputs = _add_selection(graph, net, probabilities, boxes, testing)
    make, kinds = graph.onnx.helper, graph.onnx.TensorProto
    images = make.make_tensor_value_info("images", kinds.FLOAT, [1, net.spec.in_channels, "height", "width"])
    shapes = (kinds.FLOAT, ["objects", 4]), (kinds.INT64, ["objects"]), (kinds.FLOAT, ["objects"])
    results = [make.make_tensor_value_info(name, *shape) for name, shape in zip(outputs, shapes, strict=True)]
    return write_model(graph, net.spec.name, [images], results, about)


def _add_proposals(graph: DetectorGraph, net: FasterRCNN, x: str, testing: Testing) -> str:
    spec, rpn = net.spec, net.rpn
    seen = x
    for module in net.backbone.list_activation():
        seen = graph.layers(module, seen)
    hidden = graph.add("Relu", graph.conv(rpn.conv, seen))
    flat = [graph.add("Transpose", graph.conv(conv, hidden), perm=[0, 2, 3, 1]) for conv in (rpn.score, rpn.shift)]
    scores = graph.add("Reshape", flat[0], graph.whole(-1))
    shifts = graph.add("Reshape", flat[1], graph.whole(-1, 4))
    anchors = graph.anchors(x, rpn.shapes, spec.stride)
    scores, places = graph.best(scores, LARGEST[False][0])
    boxes = graph.clip(graph.decode(graph.take(shifts, places), graph.take(anchors, places)), "images")
    left, top, right, bottom = graph.columns(boxes)
    least = graph.add("Min", graph.add("Sub", right, left), graph.add("Sub", bottom, top))
    large = graph.add("GreaterOrEqual", graph.add("Squeeze", least, graph.whole(1)), graph.constant(LEAST_SIDE))
    kept = graph.add("Squeeze", graph.add("NonZero", large), graph.whole(0))
    boxes, scores = graph.take(boxes, kept), graph.take(scores, kept)
    chosen = graph.add(
        "NonMaxSuppression",
        graph.add("Unsqueeze", boxes, graph.whole(0)),
        graph.add("Unsqueeze", scores, graph.whole(0, 1)),
        graph.whole(testing.proposals),
        graph.constant(torch.tensor([NMS])),
    )
    return graph.take(boxes, _column(graph, chosen, 2))


def _column(graph: DetectorGraph, x: str, index: int) -> str:
    return graph.add("Gather", x, graph.constant(torch.tensor(index)), axis=1)


def _add_regions(graph: DetectorGraph, net: FasterRCNN, x: str, regions: str) -> tuple[str, str]:
    """Probabilities (N, classes + 1) and boxes (N, classes, 4)."""
    spec, pooled_from = net.spec, regions
    if spec.context:
        height, width = (graph.read_size("images", axis) for axis in (2, 3))
        zero = graph.constant(torch.zeros(1))
        whole = graph.add("Unsqueeze", graph.add("Concat", zero, zero, width, height, axis=0), graph.whole(0))
        pooled_from = graph.add("Concat", regions, whole, axis=0)
    left, *_ = graph.columns(pooled_from)
    zeros = graph.add("Mul", left, graph.constant(0.0))
    size, scale = spec.pool_size, 1 / spec.stride
    if spec.pool == "max":
        numbered = graph.add("Concat", zeros, pooled_from, axis=1)
        pooled = graph.add("MaxRoiPool", x, numbered, pooled_shape=[size, size], spatial_scale=scale)
    else:
        pictures = graph.add("Cast", graph.add("Squeeze", zeros, graph.whole(1)), to=graph.onnx.TensorProto.INT64)
        how: dict[str, Any] = {"output_height": size, "output_width": size, "sampling_ratio": 2}
        pooled = graph.add(
            "RoiAlign",
            x,
            pooled_from,
            pictures,
            **how,
            spatial_scale=scale,
            coordinate_transformation_mode="half_pixel",
        )
    for module in net.backbone.tail:
        pooled = graph.layers(module, pooled)
    features = graph.add("Flatten", graph.add("GlobalAveragePool", pooled))
    if spec.context:
        bounds = (graph.whole(0), graph.whole(-1), graph.whole(0)), (graph.whole(-1), graph.whole(_END), graph.whole(0))
        each, last = (graph.add("Slice", features, *bound) for bound in bounds)
        spread = graph.add("Expand", last, graph.add("Shape", each))
        features = graph.add("Concat", each, spread, axis=1)
    scores, shifts = (
        graph.add("Gemm", features, graph.constant(layer.weight), graph.constant(layer.bias), transB=1)
        for layer in (net.classifier, net.regressor)
    )
    shifts = graph.add("Reshape", shifts, graph.whole(-1, spec.num_classes, 4))
    shifts = graph.add("Mul", shifts, graph.constant(torch.tensor(DEVIATIONS)))
    boxes = graph.clip(graph.decode(shifts, graph.add("Unsqueeze", regions, graph.whole(1))), "images")
    return graph.add("Softmax", scores, axis=1), boxes


def _add_selection(
    graph: DetectorGraph, net: FasterRCNN, probabilities: str, boxes: str, testing: Testing
) -> tuple[str, str, str]:
    """NMS within each class: the classes stand where ONNX has a batch, as each has boxes of its own."""
    last = graph.whole(net.spec.num_classes)
    counted = graph.add("Slice", probabilities, graph.whole(0), last, graph.whole(1))
    scores = graph.add("Transpose", counted, perm=[1, 0])
    by_class = graph.add("Transpose", boxes, perm=[1, 0, 2])
    chosen = graph.add(
        "NonMaxSuppression",
        by_class,
        graph.add("Unsqueeze", scores, graph.whole(1)),
        graph.whole(testing.proposals),
        graph.constant(torch.tensor([testing.nms])),
        graph.constant(torch.tensor([testing.score])),
    )
    places = graph.add("Gather", chosen, graph.whole(0, 2), axis=1)
    ranked, order = graph.best(graph.add("GatherND", scores, places), testing.most)
    found = graph.take(graph.add("GatherND", by_class, places), order)
    labels = graph.take(_column(graph, chosen, 0), order)
    names = ("boxes", "labels", "scores")
    for name, result in zip(names, (found, labels, ranked), strict=True):
        graph.add("Identity", result, output=name)
    return names


def describe_use(net: FasterRCNN) -> str:
    """How to prepare the input, in words."""
    scaling = net.scaling
    mean, std = ([round(value, 6) for value in values] for values in (scaling.mean, scaling.std))
    return (
        f"images (1, {net.spec.in_channels}, H, W): RGB, shorter side {scaling.side}, longer side at most "
        f"{scaling.longest}, (x / 255 - {mean}) / {std}; boxes (left, top, right, bottom in pixels of the input), "
        f"labels and scores of at most {_TESTING.most} objects, NMS inside."
    )


def compare(net: FasterRCNN) -> float:
    """The largest difference of scores, and of boxes as a share of the picture; infinite if other objects are found.

    A trained detector finds nothing in random pictures, so the graph that is compared keeps detections of any score;
    it differs from the one that is written in that number alone.
    """
    runtime = need("onnxruntime", "onnx")
    testing = dataclasses.replace(_TESTING, score=0.0)
    session = runtime.InferenceSession(write(net, {}, testing), providers=["CPUExecutionProvider"])
    draw, worst = torch.Generator().manual_seed(0), 0.0
    for height, width in _SHAPES:
        coarse = torch.randn(1, net.spec.in_channels, height // 16, width // 16, generator=draw)
        image = nn.functional.interpolate(coarse, (height, width), mode="bicubic")
        boxes, labels, scores = session.run(None, {"images": image.numpy()})
        wanted = detect_in([Look.at_image(net, image[0])], testing)
        worst = max(worst, _measure_difference(wanted, Found(boxes, labels, scores), max(height, width)))
    return worst


def _measure_difference(ours: Found, theirs: Found, side: int) -> float:
    """Each detection beside the nearest one of its class on the other side; rounding decides which come last."""
    if len(ours.scores) != len(theirs.scores) or not len(ours.scores):
        return float("inf")
    worst = 0.0
    for a, b in ((ours, theirs), (theirs, ours)):
        for box, label, score in zip(a.boxes, a.labels, a.scores, strict=True):
            if score < a.scores.min() + _ROUNDING:
                continue
            mine = b.labels == label
            if not mine.any():
                return float("inf")
            off = np.maximum(np.abs(b.boxes[mine] - box).max(1) / side, np.abs(b.scores[mine] - score))
            worst = max(worst, float(off.min()))
    return worst
