"""A few training images, as a network reads them in testing."""

from __future__ import annotations

import torch
from torch import Tensor

from resnets.counter_rng import order
from resnets.data.batches import FileBatches, normalize_of
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.recipe import Recipe


def sample_training_images(data: Images | Folder, recipe: Recipe, side: int, count: int) -> Tensor:
    """Normalised, without augmentation: the first images of a set, or random ones of a folder, which is sorted."""
    if isinstance(data, Images):
        return normalize_of(data, recipe)(torch.from_numpy(data.train_images[:count]))
    where = 0, torch.device("cpu"), slice(0, count)
    batches = FileBatches(data, recipe, *where, side=side, workers=0, bad_images="skip")
    (images,) = batches.plain(order(len(data.train), 0, 0)[:count], count)
    return images
