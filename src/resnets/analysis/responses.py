"""Responses of layers (v1 Section 4.2, Figure 7): what each convolution makes, after BN, before ReLU or addition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from resnets.nn import ResNet


@contextmanager
def responses(net: ResNet) -> Iterator[list[float]]:
    """A list that gets the standard deviation of each response while `net` runs, in the order of the layers.

    The layers are the stem's and those of every F. Where no BN stands right behind a convolution, as behind the last
    one of a pre-activation unit, its own output is taken.
    """
    found: list[float] = []

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        found.append(output.std(correction=0).item())

    handles = [layer.register_forward_hook(note) for layer in _find_responses(net)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _find_responses(net: ResNet) -> Iterator[nn.Module]:
    for part in (net.stem, *(unit.get_submodule("residual") for unit in net.units)):
        layers = [module for module in part.modules() if not isinstance(module, nn.Sequential)]
        for layer, behind in zip(layers, [*layers[1:], None], strict=True):
            if isinstance(layer, nn.Conv2d):
                yield behind if isinstance(behind, nn.BatchNorm2d) else layer
