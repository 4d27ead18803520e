"""Preprocess an image for testing: resize the shorter side, crop the centre, normalise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from resnets.chain import NetworkSpec
from resnets.data import load
from resnets.data.augment import Normalize
from resnets.data.contrast import KINDS, read_contrast
from resnets.data.images import SPLIT_SEED, Images
from resnets.data.test_crops import Crop, MultiScale, TenCrop, Views
from resnets.errors import UserError
from resnets.metadata import Metadata, Preprocessing, parse_sides
from resnets.view_options import ViewOptions


@dataclass(frozen=True)
class Transform:
    """A PIL image, or uint8 (C, H, W), to float32 (C, side, side): `net(net.transform(picture)[None])`.

    Without a picture it answers with itself, so that `transform = net.transform()` works too.
    """

    views: Views
    normalize: Normalize
    channels: int = 3
    name: str = field(init=False)  # the views in words

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.views))

    @overload
    def __call__(self) -> Transform: ...

    @overload
    def __call__(self, picture: Image.Image | Tensor | np.ndarray[Any, Any]) -> Tensor: ...

    def __call__(self, picture: Image.Image | Tensor | np.ndarray[Any, Any] | None = None) -> Tensor | Transform:
        if picture is None:
            return self
        if not isinstance(picture, Image.Image):
            picture = to_picture(picture)
        view, *others = self.views.views(picture.convert("L" if self.channels == 1 else "RGB"))
        assert not others, "a transform has one view"
        return self.normalize(to_tensor(view)[None])[0]

    def __repr__(self) -> str:
        numbers = (values.flatten().tolist()[:4] for values in (self.normalize.mean, self.normalize.std))
        mean, std = (", ".join(f"{value:.4g}" for value in values) for values in numbers)
        return f"Transform({self.views}, mean {mean}, std {std})"


def transform_of(
    metadata: Metadata,
    spec: NetworkSpec,
    *,
    views: ViewOptions | None = None,
    images: Images | None = None,
    per: str | None = None,
    device: torch.device | str = "cpu",
) -> Transform:
    """The transform from a network's file, or the usual one; `views` and `per` override it."""
    usual = preprocessing_of(metadata, spec)
    chosen = _choose_views(usual, views or ViewOptions())
    return Transform(chosen, normalization(metadata, spec, images, per).to(device), spec.in_channels)


def _choose_views(usual: Preprocessing, options: ViewOptions) -> Views:
    if options.multi_scale:
        return MultiScale(options.multi_scale, usual.interpolation)
    sides = parse_sides(options.crop) if options.crop else (usual.crop, usual.resize)
    return (TenCrop if options.ten_crop else Crop)(*sides, usual.interpolation)


def preprocessing_of(metadata: Metadata, spec: NetworkSpec) -> Preprocessing:
    return metadata.preprocessing or Preprocessing.usual(spec)


def normalization(
    metadata: Metadata,
    spec: NetworkSpec,
    images: Images | None = None,
    per: str | None = None,
    what: str = "the network",
) -> Normalize:
    """The normalisation of the weights, unless `per` overrides it; a mean image is that of `images`, if given."""
    known = metadata.preprocessing
    kind = per or (known.normalize if known else "channel")
    if kind in KINDS and known:
        shape = spec.in_channels, known.crop, known.crop
        return read_contrast(kind, metadata.arrays, shape, metadata.origin or what)
    if kind == "channel" and per is None and (known or images is None):
        usual = preprocessing_of(metadata, spec)
        return Normalize.by_channel(usual.mean, usual.std)
    if images is None:  # a mean image needs the training images
        if metadata.data is None:
            raise UserError(
                f"{metadata.origin or what} needs the mean image of its training data, but does not name the data."
            )
        images = load(metadata.data)
    held_out = known.held_out if known and per is None and images.name == metadata.data else 0
    return Normalize.of(images, kind, images.split(held_out, SPLIT_SEED)[0])


def to_tensor(picture: Image.Image) -> Tensor:
    """uint8 (C, H, W)."""
    array = np.array(picture)
    return torch.from_numpy(array).permute(2, 0, 1) if array.ndim == 3 else torch.from_numpy(array)[None]


def to_picture(pixels: Tensor | np.ndarray[Any, Any]) -> Image.Image:
    """A uint8 array (C, H, W) as a PIL image."""
    array = np.asarray(pixels)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[0] not in (1, 3):
        raise UserError(f"an image must be uint8 (1 or 3, height, width), not {array.dtype} {array.shape}.")
    return Image.fromarray(array.transpose(1, 2, 0).squeeze())
