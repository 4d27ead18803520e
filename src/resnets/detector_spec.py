"""What a detector is, as frozen data: Faster R-CNN on a network that v1 compares. No torch here.

The layers up to stride 16 are shared and see the whole picture; the last stage sees one region at a time. `DETECTORS`
has a name for every ImageNet network, and VGG-16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resnets.chain import require_residual
from resnets.errors import UserError, one_of, shown
from resnets.options import check, fields_of, list_meanings, option, parse_reals
from resnets.spec import Spec
from resnets.zoo import NETWORKS, NetworkOptions, spec_of

PREFIX = "faster_rcnn_"
VGG = f"{PREFIX}vgg16"
POOLS = {"max": "RoI pooling, as v1", "align": "RoI align"}
_MOST = 64  # sizes or ratios of anchors


@dataclass(frozen=True)
class VggSpec:
    """VGG's convolutions: stages of 3x3 convolutions with ReLU, and 2x2 max pooling behind each stage."""

    name: str = "vgg16"
    stages: tuple[tuple[int, ...], ...] = ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)
    in_channels: int = 3

    @property
    def shared_channels(self) -> int:
        return self.stages[-2][-1]

    @property
    def tail_channels(self) -> int:
        return self.stages[-1][-1]

    @property
    def stride(self) -> int:
        return 2 ** (len(self.stages) - 1)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "vgg": [list(stage) for stage in self.stages]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> VggSpec:
        stages = data["vgg"]
        lists = isinstance(stages, list) and len(stages) > 1 and all(isinstance(s, list) and s for s in stages)
        if not lists or not all(type(n) is int and 0 < n < 1 << 20 for stage in stages for n in stage):
            raise UserError(f"the stages of a VGG network must be lists of whole numbers, not {shown(stages)}.")
        return cls(str(data.get("name", "vgg16")), tuple(tuple(stage) for stage in stages))


@dataclass(frozen=True)
class DetectorOptions:
    """Fields of a detector besides those of its backbone and those that the recipe has."""

    pool: str = option("max", f"how regions are pooled: {list_meanings(POOLS)}", group="detector", choices=POOLS)
    context: bool = option(False, "join the feature of the whole picture to that of each region", group="detector")
    anchor_ratios: tuple[float, ...] = option(
        (0.5, 1.0, 2.0),
        "height to width of the anchors",
        group="detector",
        parse=parse_reals,
        metavar="X,X",
        show=False,
    )
    rpn_width: int = option(512, "filters of the region proposal network", group="detector", least=1, most=1 << 16)


@dataclass(frozen=True)
class DetectorSpec(DetectorOptions):
    """Faster R-CNN: backbone, region proposal network, pooling, the last stage once per region, two sibling layers."""

    name: str = ""
    backbone: Spec | VggSpec = NETWORKS["resnet50"]
    num_classes: int = 20  # without the background, whose score is the last
    anchor_sizes: tuple[int, ...] = (128, 256, 512)
    pool_size: int = 14

    def __post_init__(self) -> None:
        for field in fields_of(DetectorOptions).values():
            object.__setattr__(self, field.name, check(field, getattr(self, field.name)))
        for name in ("num_classes", "pool_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
                raise UserError(f"{name} must be a whole number of at least 1, not {shown(value)}.")
        for name in ("anchor_sizes", "anchor_ratios"):
            values = getattr(self, name)
            if not (
                isinstance(values, tuple)
                and 1 <= len(values) <= _MOST
                and all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < 1e6 for v in values)
            ):
                raise UserError(f"{name} must be numbers above 0, as 128,256,512; not {shown(values)}.")
        if isinstance(self.backbone, Spec) and len(self.backbone.blocks) < 2:
            raise UserError(f"{self.backbone.name} has one stage, and a detector needs one for the regions besides.")

    @property
    def anchors(self) -> int:
        """Anchors at each place of the map."""
        return len(self.anchor_sizes) * len(self.anchor_ratios)

    @property
    def stride(self) -> int:
        """Pixels of the picture for each pixel of the shared map: 16 in v1."""
        return self.backbone.stride if isinstance(self.backbone, VggSpec) else 2 ** (self.backbone.halvings - 1)

    @property
    def shared_channels(self) -> int:
        if isinstance(self.backbone, VggSpec):
            return self.backbone.shared_channels
        return self.backbone.widths[-2] * self.backbone.expansion

    @property
    def tail_channels(self) -> int:
        """Channels of what the two sibling layers read of a region."""
        if isinstance(self.backbone, VggSpec):
            return self.backbone.tail_channels
        return self.backbone.widths[-1] * self.backbone.expansion

    @property
    def in_channels(self) -> int:
        return self.backbone.in_channels

    @property
    def min_size(self) -> int:
        """The smallest side of a picture: the shared map must have a pixel."""
        return self.stride + 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["backbone"] = self.backbone.to_dict()
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DetectorSpec:
        if not isinstance(data, Mapping) or not isinstance(data.get("backbone"), Mapping):
            raise UserError("a detector's description must be an object with a backbone.")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise UserError(f"a detector's description has no field {', '.join(unknown)}; update resnets to read it.")
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
        backbone = dict(data["backbone"])
        if "vgg" in backbone:
            values["backbone"] = VggSpec.from_dict(backbone)
        else:
            values["backbone"] = Spec.from_dict(backbone)
        return cls(**values)


DETECTORS: dict[str, str] = {
    f"{PREFIX}{name}": name for name in (*(name for name, spec in NETWORKS.items() if spec.stem == "imagenet"), "vgg16")
}


def is_detector(name: object) -> bool:
    """Whether a word is meant as the name of a detector."""
    return isinstance(name, str) and name.startswith(PREFIX)


def detector_of(name: str, *, network: Mapping[str, Any] | None = None, **fields: Any) -> DetectorSpec:
    """The named detector; `network` replaces fields of its backbone, `fields` those of the detector.

    >>> from resnets.detector_spec import detector_of
    >>> detector_of("faster_rcnn_resnet50", num_classes=3).stride
    16
    """
    if name not in DETECTORS:
        near = name.removeprefix(PREFIX)
        if near in NETWORKS:
            raise UserError(
                f"{near} is made for small images; a detector needs a network for ImageNet: {', '.join(DETECTORS)}."
            )
        raise one_of("detector", name, DETECTORS)
    changes = {key: value for key, value in (network or {}).items() if key in fields_of(NetworkOptions)}
    inner = DETECTORS[name]
    if inner == "vgg16":
        if changes:
            raise UserError(f"VGG-16 has no {', '.join(changes)}; leave that out.")
        return DetectorSpec(name=name, backbone=VggSpec(), **fields)
    # The classifier of the backbone is left out, so its number of classes means nothing.
    backbone = require_residual(spec_of(inner, **{**changes, "num_classes": 1}), "a detector needs")
    return DetectorSpec(name=name, backbone=backbone, **fields)
