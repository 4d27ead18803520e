"""Scale images by an antialiased bilinear filter: PIL's, or torch's, which is several times as fast."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.nn import functional

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)


def resize_by_pil(pixels: Pixels, box: tuple[float, float, float, float], side: int) -> Pixels:
    """Scale the part between these corners to a square."""
    return np.array(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR, box))


def resize_by_torch(pixels: Pixels, scale: tuple[float, float], side: int) -> Pixels:
    """Scale to a square whose pixels are `scale` pixels wide and high. PIL's pixels to within one level."""
    resized = np.empty((1, side, side, 3), np.uint8)  # with `out=`, torch keeps the channels of a pixel side by side
    cut = np.require(pixels, requirements=("C", "W"))[None]
    x, out = (torch.from_numpy(array).permute(0, 3, 1, 2) for array in (cut, resized))
    torch.ops.aten._upsample_bilinear2d_aa.out(x, (side, side), False, 1 / scale[1], 1 / scale[0], out=out)
    return resized[0]


def resize_whole(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Scale a whole image to this width and height by torch's filter."""
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    x = torch.from_numpy(np.require(pixels, requirements=("C", "W")))[None].permute(0, 3, 1, 2)
    scaled = functional.interpolate(x, (size[1], size[0]), mode="bilinear", antialias=True)
    return scaled[0].permute(1, 2, 0).contiguous().numpy()


def mirror(pixels: Pixels) -> Pixels:
    """Flip by torch, which is ten times as fast as copying numpy's reversed view."""
    return torch.from_numpy(pixels).permute(2, 0, 1).flip(2).permute(1, 2, 0).numpy()
