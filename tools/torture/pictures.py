"""Broken pictures, given to `predict`, `data check` and `eval`."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tools.torture.command import run
from tools.torture.mutation import mutate, near_front


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    """A colourful picture without hard edges."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def originals() -> Iterator[tuple[str, bytes]]:
    """Good files of every kind that decoders have code of their own for, with their endings."""
    picture = smooth(48, 36)
    exif = Image.Exif()
    exif[0x0112] = 6
    deep = Image.fromarray(np.arange(48 * 36, dtype=np.uint16).reshape(36, 48))
    frames = [smooth(20, 20, seed) for seed in range(3)]
    yield "jpg", encoded(picture)
    yield "jpg", encoded(picture, progressive=True, optimize=True)
    yield "jpg", encoded(picture, subsampling=0, restart_marker_blocks=2)
    yield "jpg", encoded(picture.convert("L"))
    yield "jpg", encoded(picture.convert("CMYK"))
    yield "jpg", encoded(picture, exif=exif, comment=b"a comment", icc_profile=b"x" * 300)
    yield "png", encoded(picture, "PNG")
    yield "png", encoded(picture.convert("P"), "PNG", transparency=bytes(range(200)))
    yield "png", encoded(picture.convert("RGBA"), "PNG")
    yield "png", encoded(deep, "PNG")
    yield "gif", encoded(frames[0].convert("P"), "GIF")
    yield "gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], transparency=0)
    yield "bmp", encoded(picture, "BMP")
    yield "bmp", encoded(picture.convert("P"), "BMP")
    yield "webp", encoded(picture, "WEBP")
    yield "webp", encoded(picture.convert("RGBA"), "WEBP", lossless=True)
    yield "webp", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    yield "tif", encoded(picture, "TIFF")
    yield "tif", encoded(picture, "TIFF", compression="tiff_lzw")
    yield "tif", encoded(picture, "TIFF", compression="tiff_deflate")
    yield "tif", encoded(picture.convert("1"), "TIFF", compression="group4")
    yield "tif", encoded(deep, "TIFF", exif=exif)
    yield "ppm", encoded(picture, "PPM")
    yield "pgm", encoded(deep, "PPM")


class Pictures:
    """One broken picture for one command."""

    def __init__(self, folder: Path) -> None:
        self.kinds = list(originals())
        self.good = encoded(smooth(40, 40))
        for number, (ending, data) in enumerate(self.kinds):  # imports what decodes them, and compiles what is ours
            path = folder / f"{number}.{ending}"
            path.write_bytes(data)
        run("predict", folder, "--json")

    def attack(self, draw: random.Random, folder: Path) -> None:
        ending, data = draw.choice(self.kinds)
        data = (near_front if draw.random() < 0.5 else mutate)(data, draw)
        if draw.random() < 0.1:
            ending = draw.choice(("jpg", "png", "gif", "tif", "webp", "bmp"))
        if draw.random() < 0.85:
            path = folder / f"picture.{ending}"
            path.write_bytes(data)
            form = draw.choice(([], ["--json"], ["--csv"], ["--cam", "cam.png"], ["--ten-crop"], ["--crop", "32@40"]))
            run("predict", path, *form)
            return
        for name in ("cat", "dog"):
            (folder / "set" / name).mkdir(parents=True)
            (folder / "set" / name / "good.jpg").write_bytes(self.good)
        (folder / "set" / "cat" / f"bad.{ending}").write_bytes(data)
        run("data", "check", folder / "set", "--bad-images", draw.choice(("error", "skip")))
