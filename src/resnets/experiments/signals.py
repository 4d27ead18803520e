"""How large the signal is along a trained network, how much of it is zero, and how strongly its layers respond."""

from __future__ import annotations

import torch
from torch import Tensor

from resnets.analysis.responses import responses
from resnets.counter_rng import order
from resnets.data.augment import Normalize
from resnets.data.batches import FileBatches
from resnets.data.folder import Folder
from resnets.data.images import SPLIT_SEED, Images
from resnets.runs import Run
from resnets.weights.models import open_model

_IMAGES = 32


def measure_signal(run: Run, images: Images | Folder) -> dict[str, list[float]]:
    """On training images, as the net is tested.

    Of x_0 to x_L the root mean square (`size`) and the share of `zeros`; of each layer the deviation of its
    `responses`.
    """
    net = open_model(run).eval()
    x = _read_images(run, images)
    found: dict[str, list[float]] = {"size": [], "zeros": []}
    with torch.no_grad(), responses(net) as stds:
        for layer in (net.stem, *net.units):
            x = layer(x)
            found["size"].append(_five_digits(x.square().mean().sqrt().item()))
            found["zeros"].append(round((x == 0).float().mean().item(), 5))
    return {**found, "responses": list(map(_five_digits, stds))}


def _read_images(run: Run, images: Images | Folder) -> Tensor:
    """Training images as the net reads them in testing: the first, or of a folder, where these are alike, any."""
    recipe = run.identity.recipe
    if isinstance(images, Images):
        trained, _ = images.split(recipe.validation, SPLIT_SEED)
        normalize = Normalize.of(images, recipe.normalize, trained)
        return normalize(torch.from_numpy(images.train_images[:_IMAGES]))
    side = recipe.side or run.identity.spec.input_size
    feed = FileBatches(
        images, recipe, 0, torch.device("cpu"), slice(0, _IMAGES), side=side, workers=0, bad_images="skip"
    )
    (x,) = feed.plain(order(len(images.train), 0, 0)[:_IMAGES], _IMAGES)
    return x


def _five_digits(value: float) -> float:
    return float(f"{value:.5g}")
