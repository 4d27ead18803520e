"""The layers of chains as nodes of an ONNX graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from resnets.nn import ChainNet
from resnets.nn.chain import Aux, Gate, Highway, MapLinear, MaskDropout, Maxout, Mix, Pyramid, Sum


class ChainGraph:
    """Nodes for the layers that only chains have; `Graph` has the others."""

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        raise NotImplementedError

    def constant(self, values: Tensor | float | list[int]) -> str:
        raise NotImplementedError

    def steps(self, modules: nn.Module, x: str) -> str:
        raise NotImplementedError

    def step(self, module: nn.Module, x: str) -> str:
        raise NotImplementedError

    def chain(self, net: ChainNet, x: str) -> str:
        """All layers, and the mean over all places, of which an image of the network's own size has one."""
        self.maps = _find_pyramid_maps(net)
        for layer in net.layers():
            x = self.step(layer, x)
        return self.add("Flatten", self.add("GlobalAveragePool", x), output="scores")

    def write_chain_layer(self, module: nn.Module, x: str) -> str | None:  # noqa: PLR0911, PLR0912, a row for each kind
        match module:
            case MapLinear():
                weight = module.weight.view(module.out_features, -1, *module.sides)
                return self.add("Conv", x, self.constant(weight), self.constant(module.bias))
            case nn.AdaptiveAvgPool2d(output_size=1):
                return self.add("GlobalAveragePool", x)
            case nn.AdaptiveMaxPool2d(output_size=1):
                return self.add("GlobalMaxPool", x)
            case nn.ELU():
                return self.add("Elu", x, alpha=module.alpha)
            case nn.PReLU():
                return self.add("PRelu", x, self.constant(module.weight.view(-1, 1, 1)))
            case nn.Dropout() | Aux():
                return x
            case MaskDropout():
                return self.add("Mul", x, self.constant(1 - module.p))
            case nn.LocalResponseNorm():
                alpha, beta, bias = map(float, (module.alpha, module.beta, module.k))
                return self.add("LRN", x, size=module.size, alpha=alpha, beta=beta, bias=bias)
            case Maxout():
                return self.maxout(module, x)
            case Highway():
                return self.highway(module, x)
            case Pyramid():
                return self.pyramid(module, x)
            case Mix():
                return self.add("Concat", *(self.steps(branch, x) for branch in module), axis=1)
            case Sum():
                r = self.add("Mul", self.steps(module.branch, x), self.constant(float(module.scale)))
                return self.add("Add", x, r)
        return None

    def maxout(self, module: Maxout, x: str) -> str:
        """Every `pieces`th channel from each of the first ones, and the largest of these."""
        ends = [2**31 - 1], [1], [module.pieces]
        parts = [self.add("Slice", x, *map(self.constant, ([i], *ends))) for i in range(module.pieces)]
        return self.add("Max", *parts)

    def highway(self, module: Highway, x: str) -> str:
        h = self.add("Relu", self.step(module.conv, x))
        t = self.add("Sigmoid", self._gate(module.gate, x))
        return self.add("Add", self.add("Mul", t, self.add("Sub", h, x)), x)

    def _gate(self, gate: Gate, x: str) -> str:
        return self.step(gate, x)

    def pyramid(self, module: Pyramid, x: str) -> str:
        """A node for each bin: ONNX has no pooling to a grid of a given side."""
        height, width = self.maps[module]
        grids = []
        for side in module.grids:
            rows = []
            for top, bottom in _bins(height, side):
                cells = [self._bin(x, top, bottom, left, right) for left, right in _bins(width, side)]
                rows.append(self.add("Concat", *cells, axis=3))
            grids.append(self.add("Flatten", self.add("Concat", *rows, axis=2)))
        return self.add("Unsqueeze", self.add("Concat", *grids, axis=1), self.constant([2, 3]))

    def _bin(self, x: str, top: int, bottom: int, left: int, right: int) -> str:
        part = self.add("Slice", x, *map(self.constant, ([top, left], [bottom, right], [2, 3])))
        return self.add("ReduceMax", part, axes=[2, 3], keepdims=1)


def _bins(length: int, count: int) -> list[tuple[int, int]]:
    """Where the bins of adaptive pooling begin and end."""
    return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def _find_pyramid_maps(net: ChainNet) -> dict[nn.Module, tuple[int, int]]:
    """The sizes of the maps that pyramids read, on images of the network's own size."""
    if net.spec.open_size:
        return {}
    found: dict[nn.Module, tuple[int, int]] = {}

    def see(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found[module] = inputs[0].shape[2], inputs[0].shape[3]

    hooks = [m.register_forward_pre_hook(see) for m in net.modules() if isinstance(m, Pyramid)]
    try:
        like = next(net.parameters())
        net(torch.zeros(1, net.spec.in_channels, net.spec.input_size, net.spec.input_size, device=like.device))
    finally:
        for hook in hooks:
            hook.remove()
    return found
