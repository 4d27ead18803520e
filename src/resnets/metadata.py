"""What a weights file says about its network: classes, preprocessing, origin. No torch here.

The header of one of our files has, each as JSON: `classes` (a name for every output), `folders` (the folder names of
the classes if they differ, such as ImageNet's wnids), `preprocessing`, and the origin of the weights: `run` if they
were trained here, `provenance` if they were imported.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from resnets.chain import NetworkSpec
from resnets.errors import UserError

Floats = tuple[float, ...]
LARGEST_SIDE = 1024  # pixels of the shorter side after scaling; the papers' largest is 640
INTERPOLATIONS = ("bilinear", "bicubic")  # PIL's antialiased filters
IMAGENET_MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of most weights trained on ImageNet


@dataclass(frozen=True)
class Preprocessing:
    """Preprocess an RGB image: scale the shorter side to `resize`, crop the centre, (x / 255 - mean) / std."""

    mean: Floats
    std: Floats
    normalize: str = "channel"  # "pixel": subtract the mean training image, which the data gives; or as in `contrast`
    crop: int = 32
    resize: int = 32
    held_out: int = 0  # training images that are not in the mean image
    interpolation: str = INTERPOLATIONS[0]  # of the scaling

    @classmethod
    def usual(cls, spec: NetworkSpec, mean_std: tuple[Floats, Floats] = IMAGENET_MEAN_STD) -> Preprocessing:
        """The papers' crops: 224 from a shorter side of 256, others in proportion, or the whole of a small image."""
        crop = spec.input_size
        resize = crop if spec.is_small else round(crop * 256 / 224)
        return cls(*mean_std, crop=crop, resize=resize)

    def to_dict(self) -> dict[str, Any]:
        unsaid = {"held_out": 0, "interpolation": INTERPOLATIONS[0]}  # as in older files
        return {key: value for key, value in dataclasses.asdict(self).items() if value != unsaid.get(key)}


@dataclass(frozen=True)
class Metadata:
    """What a file says about its network; empty for a network that was not loaded."""

    classes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    data: str | None = None  # the name of the training data, and the hash of its pixels and labels
    digest: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict, compare=False)  # tensors that preprocessing needs
    origin: str = ""  # a sentence: what was loaded, and from where

    def to_metadata(self) -> dict[str, str]:
        """The metadata for `save_weights`, without `data` and `digest`, which are part of `run`."""
        given = {
            "classes": list(self.classes),
            "folders": list(self.folders),
            "preprocessing": self.preprocessing.to_dict() if self.preprocessing else None,
            "provenance": dict(self.provenance),
        }
        return {key: json.dumps(value) for key, value in given.items() if value}

    def name(self, label: int) -> str:
        return self.classes[label] if self.classes else str(label)


def parse_sides(text: str) -> tuple[int, int]:
    """Parse a crop and the shorter side that it is taken from: `224@256`, or `224` for both."""
    if not (found := re.fullmatch(r"([0-9]{1,5})(?:@([0-9]{1,5}))?", text)):
        raise UserError(f"crop {text!r}: write the crop and the shorter side that it is taken from, as in 224@256.")
    side, shorter = int(found[1]), int(found[2] or found[1])
    require_sides(side, shorter)
    return side, shorter


def require_sides(side: int, shorter: int) -> None:
    """Refuse a crop that does not fit, and images that would take much memory."""
    if not 0 < side <= shorter:
        raise UserError(f"a crop of {side} does not fit into a shorter side of {shorter}.")
    if shorter > LARGEST_SIDE:
        raise UserError(f"images are scaled to a shorter side of at most {LARGEST_SIDE:,} pixels, not {shorter:,}.")


def parse_metadata(header: Mapping[str, str], spec: NetworkSpec, path: object) -> Metadata:
    """Read the header of one of our files; older files say less, and defaults apply."""
    try:
        run = _read(header, "run", dict)
        data = run.get("data") or {}
        if not all(isinstance(data.get(key), str | None) for key in ("name", "digest")):
            raise ValueError("the name and the digest of the data must be text.")
        return Metadata(
            classes=_names(header, "classes", spec),
            folders=_names(header, "folders", spec),
            preprocessing=_preprocessing(_read(header, "preprocessing", dict), spec),
            data=data.get("name"),
            digest=data.get("digest"),
            provenance=_read(header, "provenance", dict),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path} has metadata that cannot be read: {error}") from error


def _read(header: Mapping[str, str], key: str, kind: type) -> Any:
    value = json.loads(header.get(key, "null"))
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(f"{key} is not a {kind.__name__}.")
    return value


def _names(header: Mapping[str, str], key: str, spec: NetworkSpec) -> tuple[str, ...]:
    names = _read(header, key, list)
    if names and (len(names) != spec.num_classes or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"{key} does not have a name for each of the {spec.num_classes} outputs.")
    return tuple(names)


def _preprocessing(given: Mapping[str, Any], spec: NetworkSpec) -> Preprocessing | None:
    if not given:
        return None
    usual = Preprocessing.usual(spec)
    mean, std = (tuple(float(value) for value in given[key]) for key in ("mean", "std"))
    if not len(mean) == len(std) == spec.in_channels or not all(map(math.isfinite, mean + std)) or min(std) <= 0:
        raise ValueError(f"mean and std must be {spec.in_channels} numbers each, the std above 0.")
    crop, resize = given.get("crop", usual.crop), given.get("resize", usual.resize)
    if type(crop) is not int or type(resize) is not int or not 0 < crop <= resize <= LARGEST_SIDE:
        raise ValueError(
            f"crop and resize must be whole numbers, the crop at most as large as the shorter side that it is taken "
            f"from, and that at most {LARGEST_SIDE:,}."
        )
    held_out = given.get("held_out", 0)
    if type(held_out) is not int or held_out < 0:
        raise ValueError("held_out must be a whole number of at least 0.")
    if (interpolation := given.get("interpolation", usual.interpolation)) not in INTERPOLATIONS:
        raise ValueError(f"interpolation must be {' or '.join(INTERPOLATIONS)}.")
    return Preprocessing(mean, std, str(given.get("normalize", "channel")), crop, resize, held_out, interpolation)
