"""The same networks in other libraries' code, run as their users run them: eager, default layout.

timm has the ImageNet nets. Its pre-activation net takes CIFAR's depths and widths as they are and needs only another
first layer; its basic and bottleneck blocks are arranged here as the original CIFAR nets. `same` is our spec of what
timm's blocks compute: a 1x1 convolution wherever the dimension changes, the stride on the 3x3, and no activation
between the first convolution and a pre-activation unit.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from resnets.errors import UserError
from resnets.spec import Spec
from resnets.unit_spec import KERNELS, ORDERS
from resnets.zoo import spec_of


def same(name: str) -> Spec:
    """The named net in timm's conventions, so that both sides compute one function with as many parameters."""
    spec = spec_of(name, resize="project", stride_on="3x3")
    return spec_of(name, resize="project", stride_on="3x3", stem_activation=False) if preactivated(spec) else spec


def preactivated(spec: Spec) -> bool:
    return ORDERS[spec.order].preactivated


def build(library: str, spec: Spec) -> nn.Module:
    """An untrained net of timm or torchvision; `ModuleNotFoundError` where that is not installed."""
    return {"timm": _timm, "torchvision": _torchvision}[library](spec)


def import_torchvision() -> ModuleType:
    """torchvision, also where its compiled part does not load: only detection needs the operators it then misses."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float overlap) -> Tensor")
        return importlib.import_module("torchvision")


def import_timm() -> ModuleType:
    import_torchvision()  # which it imports
    return importlib.import_module("timm")


def _torchvision(spec: Spec) -> nn.Module:
    if preactivated(spec) or spec.stem != "imagenet":
        raise UserError(f"torchvision has no {spec.name}.")
    return import_torchvision().models.get_model(spec.name, weights=None, num_classes=spec.num_classes)


def _timm(spec: Spec) -> nn.Module:
    timm = import_timm()
    if spec.stem == "cifar":
        return _timm_cifar_v2(spec) if preactivated(spec) else TimmCifar(spec)
    name = spec.name.replace("preresnet", "resnetv2_")
    return timm.create_model(name, pretrained=False, num_classes=spec.num_classes)


def _timm_cifar_v2(spec: Spec) -> nn.Module:
    from timm.layers import BatchNormAct2d, create_conv2d
    from timm.models.resnetv2 import ResNetV2

    basic = spec.kernels == KERNELS["basic"]
    net = ResNetV2(
        list(spec.blocks),
        tuple(width * spec.expansion for width in spec.widths),
        num_classes=spec.num_classes,
        stem_chs=spec.widths[0],
        basic=basic,
        bottle_ratio=1.0 if basic else 0.25,
        conv_layer=create_conv2d,
        norm_layer=BatchNormAct2d,
    )
    net.stem = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, spec.widths[0], 3, padding=1, bias=False)))
    return net


class TimmCifar(nn.Module):
    """timm's basic or bottleneck blocks in three stages behind a 3x3, named as in its ImageNet nets."""

    def __init__(self, spec: Spec) -> None:
        from timm.models.resnet import BasicBlock, Bottleneck, make_blocks

        super().__init__()
        block: Any = BasicBlock if spec.kernels == KERNELS["basic"] else Bottleneck
        into = spec.widths[0]
        self.conv1 = nn.Conv2d(3, into, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(into)
        self.act1 = nn.ReLU(inplace=True)
        stages, _ = make_blocks((block,) * len(spec.blocks), spec.widths, spec.blocks, into)
        self.stages = [name for name, _ in stages]
        for name, stage in stages:
            self.add_module(name, stage)
        self.fc = nn.Linear(spec.widths[-1] * spec.expansion, spec.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.bn1(self.conv1(x)))
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return self.fc(x.mean((2, 3)))
