"""Small pictures with coloured shapes, in VOC's form, that a small detector learns in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("disc", "square")
TINY = {"widths": (16, 32, 64, 128), "blocks": (1, 1, 1, 1), "rpn_width": 64}  # of faster_rcnn_resnet18
APART = 12  # pixels between shapes: those that touch are hard to tell apart, and rounding would decide the test
QUICK = {  # recipe for pictures of this size
    "detect_side": "96",
    "detect_longest": 128,
    "anchor_sizes": "24,36",
    "anchor_ratios": (1.0,),
    "pool_size": 7,
    "rpn_batch": 64,
    "roi_batch": 32,
    "optimizer": "AdamW",
    "lr": 0.001,
    "weight_decay": 0.01,
    "warmup": "20it",
    "warmup_lr": 0.0005,
    "flip": "none",
    "threads": "1",
    "decoders": 1,
}


def _are_near(box: Sequence[int], other: Sequence[int]) -> bool:
    """Whether less than `APART` pixels lie between two boxes across and down."""
    return all(box[i] < other[i + 2] + APART and other[i] < box[i + 2] + APART for i in (0, 1))


def draw_picture(random: np.random.Generator, size: tuple[int, int]) -> tuple[Image.Image, list[tuple[int, ...]]]:
    """A noisy picture with one to three shapes that stand apart: (label, left, top, right, bottom)."""
    width, height = size
    noise = random.integers(90, 150, (height, width, 3)).astype(np.uint8)
    picture = Image.fromarray(noise)
    pen = ImageDraw.Draw(picture)
    found: list[tuple[int, ...]] = []
    for _ in range(20):
        side = int(random.integers(18, 40))
        left, top = int(random.integers(0, width - side)), int(random.integers(0, height - side))
        box = (left, top, left + side, top + side)
        if any(_are_near(box, other) for _, *other in found):
            continue
        label = int(random.integers(len(CLASSES)))
        corners = (left, top, left + side - 1, top + side - 1)
        (pen.ellipse if label == 0 else pen.rectangle)(corners, fill=(230, 40, 40) if label == 0 else (40, 60, 230))
        found.append((label, *box))
        if len(found) == 3:
            break
    return picture, found


def write_shapes(
    root: Path, count: int = 10, *, tests: int = 0, seed: int = 0, size: tuple[int, int] = (96, 96)
) -> str:
    """Write pictures; returns what `--data` takes. Without `tests` the training pictures are the test pictures."""
    random = np.random.default_rng(seed)
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    names = [f"p{i:03d}" for i in range(count + tests)]
    for name in names:
        picture, objects = draw_picture(random, size)
        picture.save(root / "JPEGImages" / f"{name}.png")
        rows = "".join(
            f"<object><name>{CLASSES[label]}</name><difficult>0</difficult><bndbox><xmin>{a + 1}</xmin>"
            f"<ymin>{b + 1}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
            for label, a, b, c, d in objects
        )
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{rows}</annotation>"
        )
    lists = {"train": names[:count], "test": names[count:] or names[:count]}
    for split, some in lists.items():
        (root / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(some))
    return f"voc:{root}:train:test"
