"""The convolutions of units."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

# The gradient of strided 1x1 filters that read a few channels of maps in channels_last writes beyond its memory in
# PyTorch 2.13 on CPUs: seen with 2 to 7 channels where a vector holds 8 numbers. Not tested where it holds 16.
_FEW = 16 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else 8


class Subsampled(nn.Conv2d):
    """A strided 1x1 convolution as one of stride 1 that reads every second pixel: the same function."""

    def forward(self, x: Tensor) -> Tensor:
        down, right = self.stride
        return functional.conv2d(x[:, :, ::down, ::right], self.weight)


def conv(into: int, out: int, kernel: int, stride: int) -> nn.Conv2d:
    """Filters without bias, padded to keep the size of the map but for the stride."""
    kind = Subsampled if kernel == 1 < stride and into < _FEW else nn.Conv2d
    return kind(into, out, kernel, stride, kernel // 2, bias=False)
