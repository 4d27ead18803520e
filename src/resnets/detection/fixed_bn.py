"""Layers with fixed BN in training: BN is a constant scale and offset, which go into the filters of each step.

W is trained and the scale is not, so the convolution of `scale W` with the offset as bias gives the same map and, by
the chain rule, the same gradient of W. Nothing of the size of a map is computed or kept for BN. The compiled kernels
run such convolutions with what stands between them; without them PyTorch does, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.engine.folding import leaves
from resnets.engine.native.convolutions import Layer, convolve
from resnets.engine.native.kernels import Kernels
from resnets.engine.native.unit import is_plain
from resnets.nn import Unit
from resnets.nn.shortcuts import Identity, Plain


class Conv(NamedTuple):
    """A convolution with the BN and the ReLU behind it."""

    conv: nn.Conv2d
    bn: nn.BatchNorm2d | None = None
    relu: bool = False

    def fold(self) -> Layer:
        """With the scale of BN in the filters and its offset in the bias."""
        weight, bias = self.conv.weight, self.conv.bias
        if self.bn is not None:
            scale, offset = to_affine(self.bn)
            weight = weight * scale[:, None, None, None]
            bias = offset if bias is None else bias * scale + offset
        elif bias is None:
            bias = weight.new_zeros(len(weight))
        return Layer(weight, bias, self.conv.stride[0], self.relu)


def fix_bn(module: nn.Module) -> None:
    """BN in eval mode, whose weights are not trained."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eval().requires_grad_(False)


def to_affine(bn: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """BN with fixed statistics as scale x + offset."""
    assert bn.running_mean is not None
    assert bn.running_var is not None
    scale = bn.weight * torch.rsqrt(bn.running_var + bn.eps)
    return scale, bn.bias - bn.running_mean * scale


def run_fixed(module: nn.Module, x: Tensor, kernels: Kernels | None = None) -> Tensor:
    """What the module computes while its BN is fixed, with fewer maps; by the kernels where they can."""
    if isinstance(module, Unit):
        return _run_unit(module, x, kernels)
    for steps in _group(module):
        x = run_convs(steps, x, kernels) if isinstance(steps, list) else _run_layer(steps, x)
    return x


def _run_unit(unit: Unit, x: Tensor, kernels: Kernels | None) -> Tensor:
    x = run_fixed(unit.shared, x, kernels)
    h = run_fixed(unit.resize, x, kernels)
    if kernels is not None and (joined := _join(unit)) is not None and _fit(joined.convs, x):
        before = None if joined.before is None else to_affine(joined.before)
        layers = [conv.fold() for conv in joined.convs]
        return convolve(kernels, x, layers, before=before, h=h if joined.adds else None)
    r = run_fixed(unit.residual, x, kernels)
    return run_fixed(unit.after, unit.shortcut(h, r), kernels)


class _Joined(NamedTuple):
    """F with the addition of the shortcut and the ReLU behind it."""

    before: nn.BatchNorm2d | None  # in front of the first convolution, with a ReLU
    convs: list[Conv]
    adds: bool


def _join(unit: Unit) -> _Joined | None:
    """A unit as convolutions with all that stands around them, or None if it has another form."""
    *front, convs = _group(unit.residual)
    before: nn.BatchNorm2d | None = None
    if [type(layer) for layer in front] == [nn.BatchNorm2d, nn.ReLU]:
        before = front[0]  # type: ignore[assignment]
    elif front:
        return None
    after = [type(layer) for layer in leaves(unit.after)]
    if not isinstance(convs, list) or not isinstance(unit.shortcut, (Identity, Plain)) or after not in ([], [nn.ReLU]):
        return None
    adds = isinstance(unit.shortcut, Identity)
    if convs[-1].relu and (adds or after):
        return None
    return _Joined(before, [*convs[:-1], convs[-1]._replace(relu=convs[-1].relu or bool(after))], adds)


def run_convs(convs: Sequence[Conv], x: Tensor, kernels: Kernels | None = None) -> Tensor:
    """Convolutions with the BN and ReLU behind each."""
    if kernels is not None and _fit(convs, x):
        return convolve(kernels, x, [conv.fold() for conv in convs])
    for step in convs:
        weight, bias, _, relu = step.fold()
        x = functional.conv2d(x, weight, bias, step.conv.stride, step.conv.padding)
        x = x.relu_() if relu else x
    return x


def _run_layer(layer: nn.Module, x: Tensor) -> Tensor:
    if isinstance(layer, nn.BatchNorm2d):
        scale, offset = to_affine(layer)
        return torch.addcmul(offset[:, None, None], x, scale[:, None, None])
    return x.relu() if isinstance(layer, nn.ReLU) else layer(x)


def _group(module: nn.Module) -> Iterator[list[Conv] | nn.Module]:
    """The layers in order: convolutions that follow each other as one list, each with the BN and ReLU behind it."""
    convs: list[Conv] = []
    for layer in leaves(module):
        last = convs[-1] if convs else None
        if type(layer) is nn.Conv2d:
            convs.append(Conv(layer))
        elif isinstance(layer, nn.BatchNorm2d) and last and last.bn is None and not last.relu:
            convs[-1] = last._replace(bn=layer)
        elif isinstance(layer, nn.ReLU) and last:
            convs[-1] = last._replace(relu=True)
        else:
            if convs:
                yield convs
                convs = []
            yield layer
    if convs:
        yield convs


def _fit(convs: Sequence[Conv], x: Tensor) -> bool:
    """Whether the kernels can run convolutions on a map."""
    return type(x) is Tensor and is_plain(x) and not torch.is_autocast_enabled("cpu") and all(map(_fits, convs))


def _fits(step: Conv) -> bool:
    conv, side = step.conv, step.conv.kernel_size[0]
    return (
        is_plain(conv.weight)
        and conv.in_channels % 8 == 0
        and conv.out_channels % 8 == 0
        and (conv.kernel_size, conv.padding) == ((side, side), (side // 2, side // 2))
        and conv.stride[0] == conv.stride[1]
        and (conv.dilation, conv.groups, conv.padding_mode) == ((1, 1), 1, "zeros")
    )
