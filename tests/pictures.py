"""Pictures for tests: real photographs where they are at hand, and small trees of class folders."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnets.data import jpeg
from resnets.data.decode import Opened

REAL = Path(os.environ.get("RESNETS_SHARED_DATA") or Path(__file__).parents[2] / "shared" / "data") / "imagenet-val-200"


def photographs(count):
    """The bytes of real JPEG files."""
    found = sorted(REAL.glob("*/*.JPEG"))
    if not found:
        pytest.skip(f"no photographs in {REAL}")
    return [path.read_bytes() for path in found[:: max(len(found) // count, 1)][:count]]


DECODERS = ("libjpeg", "PIL")


def decode(data, least=None):
    """The upright RGB pixels of an image file's bytes."""
    return Opened(data).pixels(least)


def decode_by(name, monkeypatch):
    """Decode JPEG files with this decoder and those that follow it only."""
    if name == "libjpeg":
        if jpeg.load() is None:
            pytest.skip("libjpeg-turbo with its headers or a C++ compiler is missing")
    else:
        monkeypatch.setattr(jpeg, "load", lambda: None)


def smooth(width, height, seed=0):
    """A colourful picture without hard edges."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image, form="JPEG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def tree(root, classes=("cat", "dog", "emu"), each=4, size=(40, 30)):
    """root/CLASS/0.jpg ..., a colour of its own for each class."""
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            pixels = np.array(smooth(*size, seed=100 * number + i)) // 3
            pixels[..., number % 3] += 160
            (root / name / f"{i}.jpg").write_bytes(encoded(Image.fromarray(pixels)))
    return root
