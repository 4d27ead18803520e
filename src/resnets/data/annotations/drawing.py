"""Draw boxes on pictures, and pictures on a contact sheet."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.text import printable

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_TILE = 320  # pixels of the longer side of a picture on a sheet
_GAP = 6


def choose_colour(label: int) -> tuple[int, int, int]:
    """A colour for each class: hues that lie far apart, one after the other."""
    hue = (label * 0.618034) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, 1.0 if label % 2 == 0 else 0.8)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_boxes(
    picture: Image.Image,
    boxes: npt.ArrayLike,
    labels: Sequence[int],
    texts: Sequence[str],
    dashed: Sequence[bool] = (),
) -> Image.Image:
    """A copy with a frame around each box and its text above it; those that are `dashed` have a thinner frame."""
    out = picture.convert("RGB")
    pen = ImageDraw.Draw(out)
    side = max(out.size)
    line, font = max(1, side // 300), ImageFont.load_default(max(10, side // 45))
    thin = list(dashed) or [False] * len(labels)
    rows = np.asarray(boxes, np.float64).reshape(-1, 4).tolist()
    for (left, top, right, bottom), label, text, is_thin in zip(rows, labels, texts, thin, strict=True):
        colour = choose_colour(label)
        corners = (left, top, max(right - 1, left), max(bottom - 1, top))
        pen.rectangle(corners, outline=colour, width=max(1, line // 2) if is_thin else line)
        words = printable(text)
        if words:
            _write(pen, words, (left, top), font, colour)
    return out


def _write(
    pen: ImageDraw.ImageDraw,
    words: str,
    corner: tuple[float, float],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    colour: tuple[int, int, int],
) -> None:
    """Dark or light words on a plate of the colour, above the corner if there is room."""
    left, top, right, bottom = pen.textbbox((0, 0), words, font=font)
    width, height = right - left + 4, bottom - top + 4
    x = min(max(corner[0], 0), max(pen.im.size[0] - width, 0))
    y = corner[1] - height if corner[1] >= height else corner[1]
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    bright = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 130
    pen.text((x + 2 - left, y + 2 - top), words, fill="black" if bright else "white", font=font)


def make_sheet(pictures: Sequence[Image.Image], columns: int = 4) -> Image.Image:
    """Pictures side by side, each scaled to a tile."""
    tiles = [picture.copy() for picture in pictures]
    for tile in tiles:
        tile.thumbnail((_TILE, _TILE))
    columns = max(1, min(columns, len(tiles)))
    rows = -(-len(tiles) // columns)
    high = [max((tile.height for tile in tiles[r * columns : (r + 1) * columns]), default=1) for r in range(rows)]
    sheet = Image.new("RGB", (columns * (_TILE + _GAP) + _GAP, sum(high) + (rows + 1) * _GAP), "white")
    for i, tile in enumerate(tiles):
        row, column = divmod(i, columns)
        sheet.paste(tile, (_GAP + column * (_TILE + _GAP), _GAP + sum(high[:row]) + row * _GAP))
    return sheet


def require_picture_name(path: Path) -> str:
    """The format of a picture file by its ending."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"pictures are written as {', '.join(FORMATS)}, not as {path}.")
    return FORMATS[path.suffix.lower()]


def write_picture(picture: Image.Image, path: Path) -> None:
    file = io.BytesIO()
    picture.save(file, require_picture_name(path), **({"quality": 92} if path.suffix.lower() != ".png" else {}))
    write_atomically(path, file.getvalue())
