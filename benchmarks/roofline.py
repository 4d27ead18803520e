"""The convolutions of a training step alone, in the layout and with the memory that suit them: the practical bound."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from resnets.nn import build
from resnets.spec import Spec


def shapes(spec: Spec, batch: int) -> list[tuple[nn.Conv2d, torch.Size, torch.Size]]:
    """Every convolution in the order in which it runs, with the shapes that it reads and writes, by meta tensors."""
    found: list[tuple[nn.Conv2d, torch.Size, torch.Size]] = []

    def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        found.append((module, inputs[0].shape, output.shape))

    net = build(spec, device="meta")
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(see)
    net(torch.empty(batch, spec.in_channels, spec.input_size, spec.input_size, device="meta"))
    return found


def convolutions(spec: Spec, batch: int) -> Callable[[], None]:
    """Forward and backward of each; the first has no gradient of its input, as the images need none."""
    maps: dict[torch.Size, Tensor] = {}  # one of each shape serves all layers

    def of(shape: torch.Size) -> Tensor:
        if shape not in maps:
            maps[shape] = torch.randn(shape).contiguous(memory_format=torch.channels_last)
        return maps[shape]

    layers = []
    for conv, into, out in shapes(spec, batch):
        weight = torch.randn(conv.weight.shape).contiguous(memory_format=torch.channels_last)
        layers.append((of(into), of(out), weight, conv.stride, conv.padding, bool(layers)))

    def run() -> None:
        for x, gradient, weight, stride, padding, deeper in layers:
            torch.conv2d(x, weight, None, stride, padding)
            torch.ops.aten.convolution_backward(
                gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), 1, (deeper, True, False)
            )

    return run
