"""How large the signal is along a trained network, how much of it is zero, and how strongly its layers respond."""

from __future__ import annotations

import torch

from resnets.analysis.responses import responses
from resnets.data.augment import Normalize
from resnets.data.images import Images
from resnets.interop.weights import load
from resnets.runs import Run

_IMAGES = 32


def signal(run: Run, images: Images) -> dict[str, list[float]]:
    """On training images, as the net is tested.

    Of x_0 to x_L the root mean square (`size`) and the share of `zeros`; of each layer the deviation of its
    `responses`.
    """
    net = load(run.weights).eval()
    per = run.identity.recipe.normalize
    x = Normalize.of(images, per)(torch.from_numpy(images.train_images[:_IMAGES]))
    found: dict[str, list[float]] = {"size": [], "zeros": []}
    with torch.no_grad(), responses(net) as stds:
        for layer in (net.stem, *net.units):
            x = layer(x)
            found["size"].append(_five_digits(x.square().mean().sqrt().item()))
            found["zeros"].append(round((x == 0).float().mean().item(), 5))
    return {**found, "responses": list(map(_five_digits, stds))}


def _five_digits(value: float) -> float:
    return float(f"{value:.5g}")
