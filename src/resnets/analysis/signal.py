"""How large the signal is along a network, how much of it is zero, and how strongly its layers respond."""

from __future__ import annotations

import torch
from torch import Tensor

from resnets.analysis.responses import responses
from resnets.nn import ResNet


def measure_signal(net: ResNet, x: Tensor) -> dict[str, list[float]]:
    """Run a network on images, as in testing, and measure its maps to five digits.

    Of x_0 to x_L the root mean square (`size`) and the share of `zeros`; of each layer the deviation of its
    `responses`.
    """
    net.eval()
    found: dict[str, list[float]] = {"size": [], "zeros": []}
    with torch.no_grad(), responses(net) as stds:
        for layer in (net.stem, *net.units):
            x = layer(x)
            found["size"].append(_round(x.square().mean().sqrt().item()))
            found["zeros"].append(round((x == 0).float().mean().item(), 5))
    return {**found, "responses": list(map(_round, stds))}


def _round(value: float) -> float:
    return float(f"{value:.5g}")
