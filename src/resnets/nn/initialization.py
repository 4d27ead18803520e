"""First weights other than the network's own: of one deviation, within a bound, Xavier's, and LSUV."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from resnets.nn.chain import Aux, Gate
from resnets.recipe import parse_init

_CLOSE, _ROUNDS = 0.02, 20  # of LSUV: how near the variance must come to 1, and in how many trials


def initialize_by(net: nn.Module, how: str, generator: torch.Generator, images: Tensor | None = None) -> None:
    """Draw new weights of all convolutions and fully connected layers, as `Recipe.init` says; biases stay.

    `lsuv` (Mishkin and Matas 2016) begins with orthonormal filters and scales those of each layer, the first layer
    first, until its outputs for `images` have variance 1. Auxiliary heads, which read whole maps, are always Xavier's.
    """
    kind, number = parse_init(how)
    heads = {layer for head in net.modules() if isinstance(head, Aux) for layer in list_layers(head)}
    with torch.no_grad():
        for layer in list_layers(net):
            weight = layer.weight
            match "xavier" if layer in heads else kind:
                case "gaussian":
                    weight.normal_(0, number, generator=generator)
                case "uniform":
                    weight.uniform_(-number, number, generator=generator)
                case "xavier":
                    bound = math.sqrt(3 / weight[0].numel())  # Caffe's form, by inputs alone
                    weight.uniform_(-bound, bound, generator=generator)
                case "lsuv":
                    weight.copy_(_draw_orthonormal(weight, generator))
        if kind == "lsuv":
            assert images is not None
            scale_to_unit_variance(net, images)


def list_layers(net: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    """Convolutions and fully connected layers, in the order in which they were built."""
    return [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]


def _draw_orthonormal(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Filters that are orthonormal as vectors, or the numbers at one place of all filters, if these are fewer."""
    drawn = torch.randn(weight.flatten(1).shape, dtype=torch.float64, generator=generator)
    left, _, right = torch.linalg.svd(drawn, full_matrices=False)
    return (left if left.shape == drawn.shape else right).reshape(weight.shape).to(weight)


def scale_to_unit_variance(net: nn.Module, images: Tensor) -> None:
    """LSUV's second part. Gates of highway layers keep their weights, as their outputs pass a sigmoid."""
    training = net.training
    net.eval()
    for layer in list_layers(net):
        if isinstance(layer, Gate):
            continue
        for _ in range(_ROUNDS):
            variance = _measure_variance(net, layer, images)
            if variance is None or not 0 < variance < math.inf or abs(variance - 1) <= _CLOSE:
                break
            layer.weight /= math.sqrt(variance)
    net.train(training)


class _ReachedError(Exception):
    """The layer that was asked for has been computed; the rest of the network need not be."""


def _measure_variance(net: nn.Module, layer: nn.Module, images: Tensor) -> float | None:
    """The variance of a layer's outputs; None for a layer that testing does not reach, as in auxiliary heads."""
    found: list[float] = []

    def see(module: nn.Module, inputs: object, output: Tensor) -> None:
        found.append(float(output.double().var()))
        raise _ReachedError

    hook = layer.register_forward_hook(see)
    try:
        net(images)
    except _ReachedError:
        pass
    finally:
        hook.remove()
    return found[0] if found else None
