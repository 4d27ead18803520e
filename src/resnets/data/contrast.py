"""Global contrast normalization and ZCA whitening, as the authors of other systems preprocess CIFAR.

Each image has its mean subtracted and is scaled to one length (`gcn`); then the mean training image is subtracted.
`gcn-zca` also whitens: pixels are turned back along the eigenvectors of the training images' covariance, each divided
by its deviation (Goodfellow 2013, pylearn2). The statistics are kept with the weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from resnets.atomic import write_atomically
from resnets.cache import cache_dir, make_folder
from resnets.data.augment import Normalize
from resnets.data.images import Images, Indices
from resnets.errors import UserError

KINDS = ("gcn", "gcn-zca")
_LENGTH = 55.0  # of an image, as a vector
WORDS = {  # what becomes of pixels x
    "gcn": f"x less its own mean, times {_LENGTH:g} / its length, less preprocessing.mean",
    "gcn-zca": f"(x less its own mean, times {_LENGTH:g} / its length, less preprocessing.mean) as a row vector times "
    "preprocessing.whitening",
}
_SMALLEST = 1e-8  # length of an image that is scaled: one of a single colour is not
_NOISE = 0.1  # added to variances, so that the rarest differences are not blown up
_AT_ONCE = 1000  # images
_VERSION = 1  # of the arithmetic, for the cache


@dataclass(frozen=True, eq=False)
class Contrast(Normalize):
    """uint8 images (N, C, H, W) to float32, by contrast, less the mean image, and whitened if there is a matrix."""

    whitening: Tensor | None = None  # (C H W, C H W), symmetric
    source: str = ""  # the hash of the images that the statistics are of

    def to(self, device: torch.device | str) -> Contrast:
        whitening = None if self.whitening is None else self.whitening.to(device)
        return Contrast(self.mean.to(device), self.std.to(device), whitening, self.source)

    @property
    def digest(self) -> str:
        return self.source

    @property
    def arrays(self) -> dict[str, Tensor]:
        """What a file of weights keeps."""
        found = {"mean": self.mean, **({} if self.whitening is None else {"whitening": self.whitening})}
        return {name: tensor.detach().cpu().contiguous() for name, tensor in found.items()}

    def __call__(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8:
            raise UserError(f"images to normalise must be uint8, not {images.dtype}.")
        if images.shape[1:] != self.mean.shape:
            wanted, found = ("x".join(map(str, shape)) for shape in (self.mean.shape, images.shape[1:]))
            raise UserError(f"these weights were trained on images of {wanted} less their mean image, not on {found}.")
        x = scale_contrast(images).sub_(self.mean.to(images.device))
        if self.whitening is None:
            return x
        return (x.flatten(1) @ self.whitening.to(images.device)).view(images.shape)


def scale_contrast(images: Tensor) -> Tensor:
    """Each image less its own mean, scaled to one length."""
    x = images.to(torch.float32)
    x = x - x.mean((1, 2, 3), keepdim=True)
    length = x.square().sum((1, 2, 3), keepdim=True).sqrt_()
    return x.mul_(_LENGTH / torch.where(length < _SMALLEST, _LENGTH, length))


def read_contrast(kind: str, arrays: Mapping[str, Tensor], shape: tuple[int, ...], where: object) -> Contrast:
    """The normalisation that a file of weights keeps."""
    names = ("mean",) if kind == "gcn" else ("mean", "whitening")
    size = int(np.prod(shape))
    for name, wanted in zip(names, (shape, (size, size)), strict=False):
        found = arrays.get(name)
        if found is None or found.shape != wanted or not found.is_floating_point() or not found.isfinite().all():
            raise UserError(
                f"{where} was trained with {kind} and lacks its {name} of {'x'.join(map(str, wanted))} numbers, so it "
                "cannot be used."
            )
    mean = arrays["mean"].float()
    return Contrast(mean, torch.ones(len(mean), 1, 1), arrays["whitening"].float() if kind == "gcn-zca" else None)


def fit_contrast(data: Images, kind: str, trained: Indices) -> Contrast:
    """The statistics of the training images `trained`, without held-out ones.

    They are computed on one thread, so that a run which is resumed has the same bytes; whitening of 32x32 images takes
    about a minute and is kept in the cache.
    """
    source = hash_source(data, kind, trained)
    found = _read_cache(_cached(source)) if kind == "gcn-zca" else None
    if found is None:
        found = _compute(torch.from_numpy(data.train_images), trained, whiten=kind == "gcn-zca")
        if kind == "gcn-zca":
            make_folder(_cached(source).parent)
            write_atomically(_cached(source), safetensors.torch.save(found))
    mean = found["mean"]
    return Contrast(mean, torch.ones(len(mean), 1, 1), found.get("whitening"), source)


def hash_source(data: Images, kind: str, trained: Indices) -> str:
    """What decides the statistics: the images and which of them are trained on."""
    digest = hashlib.sha256(f"{_VERSION} {kind} {data.digest}".encode())
    digest.update(trained.tobytes())
    return digest.hexdigest()


def is_cached(data: Images, kind: str, trained: Indices) -> bool:
    return kind != "gcn-zca" or _cached(hash_source(data, kind, trained)).exists()


def _cached(source: str) -> Path:
    return cache_dir() / "statistics" / f"{source[:32]}.safetensors"


def _read_cache(path: Path) -> dict[str, Tensor] | None:
    try:
        found = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError):  # none, or a damaged one: it is computed again
        return None
    return found if set(found) == {"mean", "whitening"} else None


def _compute(images: Tensor, trained: Indices, whiten: bool) -> dict[str, Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the sums must not depend on their number
    try:
        mean = torch.zeros(images.shape[1:], dtype=torch.float64)
        for part in _parts(images, trained):
            mean += part.sum(0, dtype=torch.float64)
        mean = (mean / len(trained)).float()
        if not whiten:
            return {"mean": mean}
        size = mean.numel()
        total = torch.zeros(size, size, dtype=torch.float64)
        for part in _parts(images, trained):
            centred = (part - mean).flatten(1)
            total += (centred.T @ centred).double()
        total /= len(trained)
        total.diagonal().add_(_NOISE)
        variances, directions = torch.linalg.eigh(total)
        return {"mean": mean, "whitening": ((directions / variances.sqrt()) @ directions.T).float().contiguous()}
    finally:
        torch.set_num_threads(threads)


def _parts(images: Tensor, trained: Indices) -> Iterator[Tensor]:
    for start in range(0, len(trained), _AT_ONCE):
        yield scale_contrast(images[torch.from_numpy(trained[start : start + _AT_ONCE])])
