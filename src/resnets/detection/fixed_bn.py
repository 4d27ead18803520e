"""Units with fixed BN in training: BN is a constant scale and offset, which go into the filters of each step.

W is trained and the scale is not, so the convolution of `scale W` with the offset as bias gives the same map and, by
the chain rule, the same gradient of W. Nothing of the size of a map is computed or kept for BN.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.engine.folding import leaves
from resnets.nn import Unit


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


def run_fixed(module: nn.Module, x: Tensor) -> Tensor:
    """What the module computes while its BN is fixed, with fewer maps."""
    if isinstance(module, Unit):
        x = run_fixed(module.shared, x)
        h, r = run_fixed(module.resize, x), run_fixed(module.residual, x)
        return run_fixed(module.after, module.shortcut(h, r))
    fresh = False  # whether x was made here, so that it may be overwritten
    for layers in _group(module):
        first, *rest = layers
        if isinstance(first, nn.Conv2d):
            x, fresh = _run_conv(first, rest[0] if rest else None, x), True
        elif isinstance(first, nn.BatchNorm2d):
            scale, offset = to_affine(first)
            x, fresh = torch.addcmul(offset[:, None, None], x, scale[:, None, None]), True
        elif isinstance(first, nn.ReLU):
            x, fresh = (x.relu_() if fresh else x.relu()), True
        else:
            x, fresh = first(x), False
    return x


def _group(module: nn.Module) -> Iterator[list[nn.Module]]:
    """The layers in order, each convolution with the BN behind it."""
    waiting: list[nn.Module] = []
    for layer in leaves(module):
        if isinstance(layer, nn.BatchNorm2d) and waiting:
            yield [*waiting, layer]
            waiting = []
            continue
        if waiting:
            yield waiting
            waiting = []
        if type(layer) is nn.Conv2d:
            waiting = [layer]
        else:
            yield [layer]
    if waiting:
        yield waiting


def _run_conv(conv: nn.Conv2d, bn: nn.Module | None, x: Tensor) -> Tensor:
    weight, bias = conv.weight, conv.bias
    if isinstance(bn, nn.BatchNorm2d):
        scale, offset = to_affine(bn)
        weight = weight * scale[:, None, None, None]
        bias = offset if bias is None else bias * scale + offset
    return functional.conv2d(x, weight, bias, conv.stride, conv.padding)
