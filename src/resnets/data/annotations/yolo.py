"""YOLO's form: images/SPLIT/*.jpg with labels/SPLIT/*.txt (or SPLIT/images, SPLIT/labels), and names of the classes.

A line of a text file is `CLASS X Y WIDTH HEIGHT`: the number of the class from 0, then the middle and the sides of the
box as shares of the picture. More numbers are a polygon, whose box counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from resnets.data.annotations.pictures import Box, Entry
from resnets.data.annotations.sizes import read_size
from resnets.errors import UserError, shown

_TESTS = ("test", "val", "valid")
_NAMES = ("classes.txt", "obj.names", "names.txt")


def read_classes(root: Path) -> tuple[str, ...]:
    """From `names` in a .yaml file, or from a text file with a name on each line."""
    for path in sorted([*root.glob("*.yaml"), *root.glob("*.yml")]):
        if names := _read_yaml(_read_text(path)):
            return names
    for file in _NAMES:
        if (root / file).is_file():
            names = tuple(line.strip() for line in _read_text(root / file).splitlines() if line.strip())
            if names:
                return names
    raise UserError(
        f"{root} does not name its classes: write data.yaml with names, or classes.txt with one on each line."
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text in UTF-8.") from None


def _read_yaml(text: str) -> tuple[str, ...]:
    """The `names` of a data.yaml: `[a, b]`, a list of lines `- a`, or lines `0: a`."""
    if inline := re.search(r"^names:\s*\[(.*?)\]", text, re.MULTILINE | re.DOTALL):
        return tuple(_unquote(word) for word in inline[1].split(",") if word.strip())
    if not (block := re.search(r"^names:[ \t]*(?:#.*)?\n((?:[ \t]*(?:-|\d+:).*\n?|[ \t]*\n)+)", text, re.MULTILINE)):
        return ()
    rows = [line.strip() for line in block[1].splitlines() if line.strip()]
    if all(row.startswith("-") for row in rows):
        return tuple(_unquote(row[1:]) for row in rows)
    numbered = {int(row.partition(":")[0]): _unquote(row.partition(":")[2]) for row in rows if row[0].isdigit()}
    if sorted(numbered) != list(range(len(numbered))):
        raise UserError("names in a .yaml file must be numbered from 0 without gaps.")
    return tuple(numbered[i] for i in range(len(numbered)))


def _unquote(word: str) -> str:
    word = re.sub(r"\s+#.*$", "", word.strip())
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def find_splits(root: Path) -> tuple[tuple[Path, Path], tuple[Path, Path] | None]:
    """The folders of pictures and texts to train and to test on."""
    pairs = _list_pairs(root)
    trains = [name for name in pairs if name.startswith("train")]
    tests = [name for start in _TESTS for name in pairs if name.startswith(start)]
    if not pairs:
        raise UserError(f"{root} is not YOLO's form: it has no folder images with a folder labels beside it.")
    train = pairs[trains[0]] if trains else pairs[next(iter(pairs))]
    return train, pairs[tests[0]] if tests and pairs[tests[0]] != train else None


def _list_pairs(root: Path) -> dict[str, tuple[Path, Path]]:
    images, labels = root / "images", root / "labels"
    if images.is_dir() and labels.is_dir():
        splits = sorted(p.name for p in images.iterdir() if p.is_dir())
        return {name: (images / name, labels / name) for name in splits} or {"": (images, labels)}
    found = {p.name: (p / "images", p / "labels") for p in sorted(root.iterdir()) if p.is_dir()}
    return {name: pair for name, pair in found.items() if pair[0].is_dir() and pair[1].is_dir()}


def read_entries(images: Path, labels: Path, classes: tuple[str, ...]) -> Iterator[Entry]:
    from resnets.data.picture import pictures_below  # imports torch

    for picture in pictures_below(images):
        size = read_size(str(picture))
        text = labels / picture.relative_to(images).with_suffix(".txt")
        lines = _read_text(text).splitlines() if text.exists() else []
        boxes = [_read_box(line, text, i, size, classes) for i, line in enumerate(lines, 1) if line.strip()]
        yield Entry(str(picture), size, boxes)


def _read_box(line: str, path: Path, number: int, size: tuple[int, int], classes: tuple[str, ...]) -> Box:
    where = f"line {number} of {path}"
    words = line.split()
    try:
        label, values = int(words[0]), [float(word) for word in words[1:]]
    except ValueError:
        raise UserError(f"{where} must be a class and numbers, not {shown(line)}.") from None
    width, height = size
    if len(values) == 4:
        x, y, w, h = values
        corners = (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height
    elif len(values) >= 6 and len(values) % 2 == 0:
        across, down = values[::2], values[1::2]
        corners = min(across) * width, min(down) * height, max(across) * width, max(down) * height
    else:
        raise UserError(
            f"{where} has {len(values)} numbers after the class; it needs four, or the points of a polygon."
        )
    return Box(where, corners, classes[label] if 0 <= label < len(classes) else f"number {label}")
