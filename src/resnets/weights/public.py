"""Weights that other libraries publish and that our networks can hold, by name: `resnet50.tv_in1k`. No torch here.

A name is ours for the network and the publisher's word for the training: `tv` and `tv2` are torchvision's two sets,
`a1`, `a1h`, `ra4` and `tf` are recipes of timm's weights. All were trained on ImageNet-1k. The errors are those that
the publisher states for one centre crop of ImageNet's 50,000 validation images; we did not measure them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from resnets.metadata import IMAGENET_MEAN_STD, Preprocessing

ADDRESS = "RESNETS_WEIGHTS_URL"  # the environment variable with the address of a mirror of both sites
SITES = {"torchvision": "https://download.pytorch.org/models", "timm": "https://huggingface.co"}
LICENCES = {  # as the publishers state them
    "torchvision": "BSD-3-Clause",
    "timm": "Apache-2.0",
}
_HALF = ((0.5,) * 3, (0.5,) * 3)  # pixels from -1 to 1


@dataclass(frozen=True)
class PublicWeights:
    """One published file."""

    name: str  # resnet50.tv_in1k
    file: str  # what torchvision calls the file, or timm its repository on the Hugging Face hub
    mebibytes: int
    top1: float  # accuracy in per cent, as the publisher states it
    top5: float
    crop: str = "224@256"
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET_MEAN_STD
    interpolation: str = "bilinear"

    @property
    def network(self) -> str:
        return self.name.partition(".")[0]

    @property
    def error(self) -> float:
        return round(100 - self.top1, 3)

    @property
    def error5(self) -> float:
        return round(100 - self.top5, 3)

    @property
    def on_hub(self) -> bool:
        """Whether it is on the Hugging Face hub, where names of files do not carry a hash."""
        return self.file.startswith("timm/")

    @property
    def publisher(self) -> str:
        return "timm" if self.on_hub else "torchvision"

    @property
    def licence(self) -> str:
        return LICENCES[self.publisher]

    @property
    def official(self) -> str:
        """Where the publisher has the file."""
        return f"{SITES[self.publisher]}/{self._path}"

    @property
    def address(self) -> str:
        """Where the file is fetched: there, or at the mirror that the environment names."""
        return f"{self._site}/{self._path}"

    @property
    def pointer(self) -> str:
        """Where the hub states size and sha256 of its file."""
        return f"{self._site}/{self.file}/raw/main/model.safetensors"

    @property
    def _path(self) -> str:
        return f"{self.file}/resolve/main/model.safetensors" if self.on_hub else self.file

    @property
    def _site(self) -> str:
        return (os.environ.get(ADDRESS) or SITES[self.publisher]).rstrip("/")

    @property
    def digits(self) -> str:
        """The first digits of the file's sha256, which its name carries; nothing on the hub."""
        return digits_in(self.file)

    @property
    def preprocessing(self) -> Preprocessing:
        crop, resize = map(int, self.crop.split("@"))
        return Preprocessing(*self.mean_std, crop=crop, resize=resize, interpolation=self.interpolation)


def digits_in(file: str) -> str:
    """The first digits of a sha256 in the name of a file: `0676ba61` of `resnet50-0676ba61.pth`."""
    found = re.search(r"-([0-9a-f]{8})\.[a-z]+$", file)
    return found[1] if found else ""


# torchvision maps ImageNet's normalisation to [-1, 1] inside of its Inception networks. timm's are tested at the larger
# of its two sizes; the errors stand in its table results-imagenet.csv.
_GOOGLE: dict[str, Any] = {"mean_std": _HALF}
_TIMM: dict[str, Any] = {"crop": "288@288", "interpolation": "bicubic"}
_TIMM_V2: dict[str, Any] = {**_TIMM, "mean_std": _HALF}
_TF: dict[str, Any] = {**_TIMM_V2, "crop": "299@333"}

_ROWS = (
    PublicWeights("resnet18.tv_in1k", "resnet18-f37072fd.pth", 45, 69.758, 89.078),
    PublicWeights("resnet34.tv_in1k", "resnet34-b627a593.pth", 83, 73.314, 91.420),
    PublicWeights("resnet50.tv_in1k", "resnet50-0676ba61.pth", 98, 76.130, 92.862),
    PublicWeights("resnet101.tv_in1k", "resnet101-63fe2227.pth", 171, 77.374, 93.546),
    PublicWeights("resnet152.tv_in1k", "resnet152-394f9c45.pth", 230, 78.312, 94.046),
    PublicWeights("resnet50.tv2_in1k", "resnet50-11ad3fa6.pth", 98, 80.858, 95.434, crop="224@232"),
    PublicWeights("resnet101.tv2_in1k", "resnet101-cd907fc2.pth", 171, 81.886, 95.780, crop="224@232"),
    PublicWeights("resnet152.tv2_in1k", "resnet152-f82ba261.pth", 230, 82.284, 96.002, crop="224@232"),
    PublicWeights("vgg16.tv_in1k", "vgg16-397923af.pth", 528, 71.592, 90.382),
    PublicWeights("vgg19.tv_in1k", "vgg19-dcbb9e9d.pth", 548, 72.376, 90.876),
    PublicWeights("googlenet_bn.tv_in1k", "googlenet-1378be20.pth", 50, 69.778, 89.530, **_GOOGLE),
    PublicWeights(
        "inception_v3.tv_in1k", "inception_v3_google-0cc3c7bd.pth", 104, 77.294, 93.450, crop="299@342", **_GOOGLE
    ),
    PublicWeights("resnet18.a1_in1k", "timm/resnet18.a1_in1k", 45, 73.164, 91.054, **_TIMM),
    PublicWeights("resnet34.a1_in1k", "timm/resnet34.a1_in1k", 83, 77.930, 93.758, **_TIMM),
    PublicWeights("resnet50.a1_in1k", "timm/resnet50.a1_in1k", 98, 81.240, 95.112, **_TIMM),
    PublicWeights("resnet101.a1h_in1k", "timm/resnet101.a1h_in1k", 170, 82.796, 96.324, **_TIMM),
    PublicWeights("resnet152.a1h_in1k", "timm/resnet152.a1h_in1k", 230, 83.494, 96.522, **_TIMM),
    PublicWeights("preresnet18.ra4_in1k", "timm/resnetv2_18.ra4_e3600_r224_in1k", 45, 75.364, 92.692, **_TIMM_V2),
    PublicWeights("preresnet34.ra4_in1k", "timm/resnetv2_34.ra4_e3600_r224_in1k", 83, 79.070, 94.560, **_TIMM_V2),
    PublicWeights("preresnet50.a1h_in1k", "timm/resnetv2_50.a1h_in1k", 98, 81.406, 95.712, **_TIMM_V2),
    PublicWeights("preresnet101.a1h_in1k", "timm/resnetv2_101.a1h_in1k", 170, 83.002, 96.444, **_TIMM_V2),
    PublicWeights("inception_resnet_v2.tf_in1k", "timm/inception_resnet_v2.tf_in1k", 213, 80.434, 95.312, **_TF),
)
PUBLIC: dict[str, PublicWeights] = {row.name: row for row in _ROWS}
