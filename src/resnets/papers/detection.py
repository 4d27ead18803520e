"""v1's tables of detection as data: which detector, which pictures, which test, which mean average precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SWITCHES: dict[str, dict[str, Any]] = {  # of a test; the paper adds one to the other
    "": {},
    "refinement": {"refine": True},
    "scales": {"refine": True, "sides": (200, 400, 600, 800, 1000)},
    "ensemble": {"refine": True, "sides": (200, 400, 600, 800, 1000)},
    "scales of 320": {"refine": True, "sides": (107, 213, 320, 427, 533)},  # the same shares of the side in training
}


@dataclass(frozen=True)
class DetectionRow:
    """One detector to train. Cells that name an equal row share its run."""

    network: str  # of the backbone
    data: str  # voc07+12, voc07++12, coco, voc2012
    recipe: str
    context: bool = False
    changes: tuple[tuple[str, Any], ...] = ()  # of the recipe
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        words = [f"faster_rcnn_{self.network}", *(["context"] * self.context), self.data]
        object.__setattr__(self, "name", "-".join(words))


@dataclass(frozen=True)
class DetectionCell:
    """A number of the papers beside the row that would give ours."""

    label: str
    row: DetectionRow | None  # None: quoted
    test: str = ""  # one of SWITCHES
    at_50: float | None = None  # mAP@.5, in per cent
    coco: float | None = None  # mAP@[.5, .95]
    server: bool = False  # the answers are not public: an evaluation server has them


@dataclass(frozen=True)
class DetectionTable:
    where: str
    title: str
    cells: tuple[DetectionCell, ...]


def _voc(network: str, data: str = "voc07+12") -> DetectionRow:
    return DetectionRow(network, data, "voc-paper")


def _coco(network: str, context: bool = False) -> DetectionRow:
    return DetectionRow(network, "coco", "coco-paper", context)


PAPER = (
    DetectionTable(
        "v1 Table 7",
        "VGG-16 against ResNet-101 on PASCAL VOC, mAP@.5",
        (
            DetectionCell("VGG-16, VOC 2007 test, trained on 07+12", _voc("vgg16"), at_50=73.2),
            DetectionCell("ResNet-101, VOC 2007 test, trained on 07+12", _voc("resnet101"), at_50=76.4),
            DetectionCell("VGG-16, VOC 2012 test, 07++12", _voc("vgg16", "voc07++12"), at_50=70.4, server=True),
            DetectionCell("ResNet-101, VOC 2012 test, 07++12", _voc("resnet101", "voc07++12"), at_50=73.8, server=True),
        ),
    ),
    DetectionTable(
        "v1 Table 8",
        "VGG-16 against ResNet-101 on COCO val",
        (
            DetectionCell("VGG-16", _coco("vgg16"), at_50=41.5, coco=21.2),
            DetectionCell("ResNet-101", _coco("resnet101"), at_50=48.4, coco=27.2),
        ),
    ),
    DetectionTable(
        "v1 Table 9",
        "improvements of ResNet-101 on COCO val, one after the other",
        (
            DetectionCell("baseline", _coco("resnet101"), at_50=48.4, coco=27.2),
            DetectionCell("+ box refinement", _coco("resnet101"), "refinement", 49.9, 29.9),
            DetectionCell("+ context", _coco("resnet101", context=True), "refinement", 51.1, 30.0),
            DetectionCell("+ multi-scale testing", _coco("resnet101", context=True), "scales", 53.8, 32.5),
            DetectionCell("the same, trained with val, test-dev", None, "scales", 55.7, 34.9, server=True),
            DetectionCell("ensemble of three, test-dev", None, "ensemble", 59.0, 37.4, server=True),
        ),
    ),
)

# Two cores, a day: VOC 2012 train, tested on a thousand pictures of val; smaller pictures and regions, about one epoch,
# and what is in front of stride 8 is not trained: docs/decisions/0024-detection-quick.md has what a step costs then.
_SCALED = (
    ("length", "6000it"),
    ("milestones", "4500it"),
    ("detect_side", "320"),
    ("detect_longest", 533),
    ("anchor_sizes", "64,128,256"),
    ("pool_size", 7),
    ("roi_batch", 48),
    ("freeze", 2),
)


def _day(network: str, context: bool = False) -> DetectionRow:
    return DetectionRow(network, "voc2012", "voc-paper", context, _SCALED)


DAY = (
    DetectionTable(
        "v1 Table 7",
        "VGG-16 against ResNet-50 on VOC 2012 val (the paper: ResNet-101, VOC 2007 test), mAP@.5",
        (
            DetectionCell("VGG-16", _day("vgg16"), at_50=73.2),
            DetectionCell("ResNet-50", _day("resnet50"), at_50=76.4),
        ),
    ),
    DetectionTable(
        "v1 Table 9",
        "improvements of ResNet-50 on VOC 2012 val (the paper: ResNet-101, COCO val)",
        (
            DetectionCell("baseline", _day("resnet50"), at_50=48.4, coco=27.2),
            DetectionCell("+ box refinement", _day("resnet50"), "refinement", 49.9, 29.9),
            DetectionCell("+ context", _day("resnet50", context=True), "refinement", 51.1, 30.0),
            DetectionCell("+ multi-scale testing", _day("resnet50", context=True), "scales of 320", 53.8, 32.5),
        ),
    ),
)
BUDGETS = {"paper": PAPER, "day": DAY}
EXAMPLES = {"voc07+12": 16_551, "voc07++12": 21_503, "coco": 80_000, "voc2012": 5_717}  # pictures to train on
TESTED = {"voc07+12": 4_952, "voc07++12": 10_991, "coco": 40_000, "voc2012": 1_000}
