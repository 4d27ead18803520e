"""How large the signal is along a trained network, and how much of it is zero: two numbers a unit."""

from __future__ import annotations

import torch

from resnets.data.augment import Normalize
from resnets.data.images import Images
from resnets.interop.weights import load
from resnets.runs import Run

_IMAGES = 32


def signal(run: Run, images: Images) -> dict[str, list[float]]:
    """For x_0 to x_L on training images, as the net is tested: the root mean square, and the share of zeros."""
    net = load(run.weights).eval()
    per = run.identity.recipe.normalize
    x = Normalize.of(images, per)(torch.from_numpy(images.train_images[:_IMAGES]))
    found: dict[str, list[float]] = {"size": [], "zeros": []}
    with torch.no_grad():
        for layer in (net.stem, *net.units):
            x = layer(x)
            found["size"].append(float(f"{x.square().mean().sqrt().item():.5g}"))
            found["zeros"].append(round((x == 0).float().mean().item(), 5))
    return found
