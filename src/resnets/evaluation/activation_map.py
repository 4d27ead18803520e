"""Where in a picture the evidence for a class lies.

The nets end in average pooling and a linear classifier, so a class's score is the mean over the last map of what the
classifier makes of each place alone. That map of scores is the class-activation map: exact, not an estimate.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from resnets.atomic import write_atomically
from resnets.data.picture import look_at_file
from resnets.data.test_crops import LARGEST_VIEW, Crop, require_short, resize_shorter
from resnets.data.test_pictures import PictureViews
from resnets.errors import UserError
from resnets.evaluation.ensemble import Member
from resnets.nn import Network, ResNet

_LEAST = 256  # pixels of the drawing's shorter side
_RAMP = np.array([(0, 0, 80), (60, 0, 160), (200, 30, 90), (250, 140, 20), (255, 250, 120)], np.float64)
_COVER = 0.65  # how much of the picture the strongest evidence hides
_DIM = 0.35  # of the light is left where the network did not look


def activation_map(net: Network, x: Tensor, label: int) -> Tensor:
    """The score of a class at each place of the last map, (N, h, w); its mean is the score of the picture."""
    if not isinstance(net, ResNet):
        raise UserError(f"a class-activation map is drawn of residual networks, and {net.spec.name} is none.")
    training = net.training
    with torch.no_grad():
        last = net.eval().forward_features(x)
        found = torch.einsum("nchw,c->nhw", last, net.classifier.weight[label]) + net.classifier.bias[label]
    net.train(training)
    return found


def resize_for_drawing(picture: Image.Image, crop: Crop) -> Image.Image:
    """Resize the whole picture for drawing; a small one is enlarged."""
    shorter = crop.shorter * _times(crop)
    require_short(picture, shorter, LARGEST_VIEW)
    return resize_shorter(picture, shorter).convert("RGB")


def _times(crop: Crop) -> int:
    return -(-_LEAST // crop.shorter)


def overlay(whole: Image.Image, crop: Crop, evidence: Tensor) -> Image.Image:
    """A picture from `scaled_for` with the evidence (h, w) for a class over the part that was seen; bare where it is
    against it."""
    side = crop.side * _times(crop)
    left, top = round((whole.width - side) / 2), round((whole.height - side) / 2)
    seen = np.asarray(whole.crop((left, top, left + side, top + side)), np.float64)
    light = functional.interpolate(evidence[None, None].double(), (side, side), mode="bilinear", align_corners=False)
    share = light[0, 0].clamp_min(0).numpy()
    share = share / max(share.max(), 1e-12)
    colours = np.stack([np.interp(share, np.linspace(0, 1, len(_RAMP)), _RAMP[:, c]) for c in range(3)], -1)
    cover = _COVER * share[..., None]
    drawn = Image.fromarray(np.round(seen * (1 - cover) + colours * cover).astype(np.uint8))
    canvas = whole.point(lambda value: value * _DIM)
    canvas.paste(drawn, (left, top))
    return canvas


def draw_activation_map(out: Path, net: Network, member: Member, path: Path, label: int) -> None:
    """Draw where in a picture the evidence for a class lies, as `member`, which runs `net`, sees it in one crop."""
    crop = member.views
    assert isinstance(crop, Crop), "other views have several maps"

    def see(picture: Image.Image) -> tuple[Image.Image, PictureViews]:
        return resize_for_drawing(picture, crop), PictureViews(picture, [crop])

    picture, seen = look_at_file(path, net.spec.in_channels, see)
    device = member.scores.device
    x = member.transform.normalize(seen.views[crop][0][None].to(device))
    evidence = activation_map(net.to(device), x, label)[0].cpu()
    data = io.BytesIO()
    overlay(picture, crop, evidence).save(data, "PNG" if out.suffix.lower() == ".png" else "JPEG")
    write_atomically(out, data.getvalue())
