"""Whitened patches of training images as the filters of the first convolution (Page 2019, Jordan 2024).

Neighbouring pixels are nearly alike, so a network spends its first epochs on learning to see their differences. The
eigenvectors of the patches' covariance, each divided by its deviation, see all differences equally from the first step.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

_SMALLEST = 5e-4  # added to variances, so that the rarest differences, mostly noise, are not blown up


def whiten(conv: nn.Conv2d, images: Iterable[Tensor]) -> None:
    """Give a convolution whitening filters, half of them negative since ReLU follows, and do not train it.

    The directions of largest variance come first. Filters beyond twice the size of a patch keep their values.
    """
    variances, directions = torch.linalg.eigh(_covariance(conv, images))
    # An eigenvector may have either sign; here its largest element is positive.
    signs = directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()
    filters = (signs * directions / (variances + _SMALLEST).sqrt()).T.flip(0)
    pairs = min(conv.out_channels // 2, len(filters))
    bank = torch.cat((filters[:pairs], -filters[:pairs]))
    with torch.no_grad():
        conv.weight[: len(bank)] = bank.to(conv.weight).view(-1, *conv.weight.shape[1:])
    conv.weight.requires_grad_(False)


def _covariance(conv: nn.Conv2d, images: Iterable[Tensor]) -> Tensor:
    """Of all patches that lie inside the images; summed image by image, in an order that threads do not change."""
    total, count = torch.zeros(()), 0
    for x in images:
        patches = functional.unfold(x.double().cpu(), conv.kernel_size, stride=conv.stride)
        total = total + (patches @ patches.mT).sum(0)
        count += patches.shape[0] * patches.shape[2]
    return total / count
