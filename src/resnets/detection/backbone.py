"""The networks below a detector: layers that see the whole picture, and the last stage, which sees one region.

A ResNet is shared up to its last stage but one (conv4_x, stride 16), VGG-16 up to pool4. Tensors have the names of the
classifier: `stem`, `units` and `last` of a ResNet, torchvision's `features` of VGG-16.

A pre-activation network closes with its last BN-ReLU: it stands behind the last unit, so each region passes it before
the average. The shared map is the sum that the last shared unit leaves, without activation; regions are pooled from
that sum, and the region proposal network reads it through the BN-ReLU with which the next unit begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from resnets.detection.fixed_bn import fix_bn, run_fixed
from resnets.detector_spec import VggSpec
from resnets.engine.feature_map import FrozenMap
from resnets.engine.native.build import load
from resnets.engine.native.kernels import Kernels
from resnets.errors import UserError
from resnets.nn import ResNet, Unit
from resnets.nn.network import initialize
from resnets.spec import Spec


class Backbone(nn.Module):
    """Layers in order, as stages: the stages that are shared, and the layers of a region."""

    shared: list[list[nn.Module]]
    tail: list[nn.Module]
    frozen: int  # stages that are not trained
    engine: str
    memory: str
    _cache: dict[str, tuple[list[tuple[int, int]], FrozenMap]]  # what was folded, with the weights that it was made of

    def __init__(self) -> None:
        super().__init__()
        # Lists of modules that have their names elsewhere; nn.Module would give them second names.
        self.__dict__.update(shared=[], tail=[], frozen=0, engine="plain", memory="fast", _cache={})

    def list_activation(self) -> list[nn.Module]:
        """The layers through which the region proposal network reads the shared map."""
        return []

    def read_for_proposals(self, x: Tensor) -> Tensor:
        """The shared map as the region proposal network reads it."""
        for module in self.list_activation():
            x = run_fixed(module, x, self.kernels)
        return x

    @property
    def kernels(self) -> Kernels | None:
        """The compiled kernels, if they are there and the engine uses them."""
        return None if self.engine == "plain" else load().kernels

    # --- how it is computed ---------------------------------------------------------------------

    def prepare(self, engine: str, memory: str) -> None:
        """Choose how it is computed: `plain` calls the layers one by one."""
        self.__dict__.update(engine=engine, memory=memory, _cache={})

    def freeze_stages(self, count: int) -> list[nn.Module]:
        """Do not train the first stages, the stem with the first of them; returns their modules."""
        if not 0 <= count <= len(self.shared):
            raise UserError(
                f"freeze must be from 0 to {len(self.shared)}, the stages that the detector shares, not {count}."
            )
        self.__dict__.update(frozen=count, _cache={})
        found = [module for stage in self.shared[:count] for module in stage]
        for module in found:
            module.requires_grad_(False)
        return found

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        fix_bn(self)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}  # which holds memory of its own

    def forward(self, x: Tensor) -> Tensor:
        """Both parts, as the classifier computes them."""
        for module in [*(m for stage in self.shared for m in stage), *self.tail]:
            x = module(x)
        return x

    def run_shared(self, x: Tensor) -> Tensor:
        """The shared map of pictures (N, 3, H, W)."""
        stages = self.shared
        if self.engine == "plain":
            for module in (m for stage in stages for m in stage):
                x = module(x)
            return x
        if not (self.training and torch.is_grad_enabled()):
            return self._run_frozen("shared", [m for stage in stages for m in stage], x)
        first, rest = stages[: self.frozen], stages[self.frozen :]
        if first:
            x = self._run_frozen("first", [m for stage in first for m in stage], x)
        for module in (m for stage in rest for m in stage):
            x = self._run_trained(module, x)
        return x

    def _run_trained(self, module: nn.Module, x: Tensor) -> Tensor:
        if self.memory == "min" and isinstance(module, Unit) and x.requires_grad:
            return checkpoint(run_fixed, module, x, self.kernels, use_reentrant=False)
        return run_fixed(module, x, self.kernels)

    def run_tail(self, x: Tensor) -> Tensor:
        """The mean of what the last stage makes of pooled regions (N, C, size, size)."""
        if self.engine == "plain":
            for module in self.tail:
                x = module(x)
        elif self.kernels is not None or (self.training and torch.is_grad_enabled()):
            for module in self.tail:
                x = run_fixed(module, x, self.kernels)
        else:
            x = self._run_frozen("tail", self.tail, x, one_call=False)
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(1)  # so that the gradient of x lies as x does

    def _run_frozen(self, name: str, modules: Sequence[nn.Module], x: Tensor, one_call: bool = True) -> Tensor:
        """By the inference engine; folded again when weights have changed since."""
        tensors = [t for module in modules for t in (*module.parameters(), *module.buffers())]
        seen = [(t.data_ptr(), t._version) for t in tensors]
        found = self._cache.get(name)
        if found is None or found[0] != seen:
            found = self._cache[name] = seen, FrozenMap(modules)
        return found[1](x) if one_call else found[1].run_layers(x)


class ResNetBackbone(Backbone):
    """Stem and units of a residual or plain network, without its classifier."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        net = ResNet(spec)
        self.stem, self.units, self.last = net.stem, net.units, net.last
        stages: list[list[nn.Module]] = [list(stage) for stage in net.stages]
        *shared, tail = stages
        shared[0].insert(0, self.stem)
        self.__dict__.update(shared=shared, tail=[*tail, self.last])

    def list_activation(self) -> list[nn.Module]:
        """The activation with which the next unit begins, if it begins with one."""
        unit = self.tail[0]
        assert isinstance(unit, Unit)
        if len(unit.shared):
            return [unit.shared]
        return [unit.residual.before] if hasattr(unit.residual, "before") else []  # type: ignore[list-item]


class VggBackbone(Backbone):
    """VGG's convolutions in torchvision's order: `features.0`, `features.2`, ... ReLU and pooling have numbers too."""

    def __init__(self, spec: VggSpec) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        stages: list[list[nn.Module]] = []
        into = spec.in_channels
        for widths in spec.stages:
            stage: list[nn.Module] = []
            for width in widths:
                stage += [nn.Conv2d(into, width, 3, padding=1), nn.ReLU()]
                into = width
            layers += [*stage, nn.MaxPool2d(2, 2)]
            stages.append([*stage, layers[-1]])
        self.features = nn.Sequential(*layers[:-1])  # the pooling behind the last stage is left out
        stem, *shared, tail = stages
        # conv1_x is the stem, so that `freeze 1` leaves conv1_x and conv2_x as they are, as Fast R-CNN does.
        self.__dict__.update(shared=[nested(stem + shared[0]), *map(nested, shared[1:])], tail=nested(tail[:-1]))


def nested(layers: list[nn.Module]) -> list[nn.Module]:
    """Layers as one sequence, whose ReLUs can be joined with their convolutions."""
    return [nn.Sequential(*layers)]


def build_backbone(spec: Spec | VggSpec, generator: torch.Generator) -> Backbone:
    """A new backbone, initialised as its classifier is."""
    if isinstance(spec, VggSpec):
        vgg = VggBackbone(spec)
        with torch.no_grad():
            for layer in vgg.features:
                if isinstance(layer, nn.Conv2d):
                    layer.weight.normal_(0, (2 / (9 * layer.out_channels)) ** 0.5, generator=generator)
                    layer.bias.zero_()  # type: ignore[union-attr]
        return vgg
    net = ResNetBackbone(spec)
    initialize(_as_net(net, spec), generator)
    return net


def _as_net(backbone: ResNetBackbone, spec: Spec) -> ResNet:
    """The classifier with the layers of a backbone."""
    net = ResNet(spec)
    net.stem, net.units, net.last = backbone.stem, backbone.units, backbone.last
    return net
