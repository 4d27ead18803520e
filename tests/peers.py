"""Other libraries' networks, as independent oracles."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers import import_torchvision


def build(library: str, name: str, **options: object) -> nn.Module:
    """An untrained net of torchvision or timm; `ModuleNotFoundError` where that is not installed."""
    torchvision = import_torchvision()  # timm imports it too
    if library == "torchvision":
        return torchvision.models.get_model(name, weights=None, **options)
    return importlib.import_module(library).create_model(name, pretrained=False, **options)


def randomize(net: nn.Module, seed: int = 0) -> nn.Module:
    """Every parameter and statistic at random, so that none hides behind a zero or a one."""
    draw = torch.Generator().manual_seed(seed)
    for name, tensor in net.state_dict().items():
        if name.endswith("num_batches_tracked"):
            tensor.fill_(int(torch.randint(1, 100, (), generator=draw)))
        elif tensor.dim() > 1:
            tensor.normal_(0, tensor[0].numel() ** -0.5, generator=draw)
        elif name.endswith(("weight", "running_var")):
            tensor.uniform_(0.5, 1.5, generator=draw)
        else:
            tensor.normal_(0, 0.3, generator=draw)
    return net


def akamaster(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The scores of an akamaster CIFAR net in testing, computed from its own names without any module."""

    def conv_bn(x: Tensor, conv: str, bn: str, stride: int = 1) -> Tensor:
        x = functional.conv2d(x, weights[f"{conv}.weight"], stride=stride, padding=1)
        mean, var, weight, bias = (weights[f"{bn}.{k}"] for k in ("running_mean", "running_var", "weight", "bias"))
        return functional.batch_norm(x, mean, var, weight, bias)

    x = conv_bn(x, "conv1", "bn1").relu()
    for stage in (1, 2, 3):
        place = 0
        while f"layer{stage}.{place}.conv1.weight" in weights:
            unit = f"layer{stage}.{place}"
            halves = stage > 1 and place == 0
            r = conv_bn(x, f"{unit}.conv1", f"{unit}.bn1", 2 if halves else 1).relu()
            r = conv_bn(r, f"{unit}.conv2", f"{unit}.bn2")
            if halves:
                quarter = r.shape[1] // 4
                x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, quarter, quarter))
            x = (x + r).relu()
            place += 1
    return functional.linear(x.mean((2, 3)), weights["linear.weight"], weights["linear.bias"])
