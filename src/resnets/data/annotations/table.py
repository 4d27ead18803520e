"""A folder with one CSV file: a line for each object, with the file of its picture beside the CSV.

The columns are named in the first line: `file, left, top, right, bottom, class`, and perhaps `difficult` and `split`
(train, val or test). Some other names for them are known. A line without corners is a picture without objects.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from resnets.data.annotations.pictures import Box, Entry
from resnets.data.annotations.sizes import read_size
from resnets.errors import UserError, shown

_COLUMNS = {
    "file": ("file", "filename", "image", "path", "picture"),
    "left": ("left", "xmin", "x1"),
    "top": ("top", "ymin", "y1"),
    "right": ("right", "xmax", "x2"),
    "bottom": ("bottom", "ymax", "y2"),
    "class": ("class", "label", "name"),
    "difficult": ("difficult",),
    "split": ("split", "set"),
}
_NEEDED = ("file", "left", "top", "right", "bottom", "class")
_SPLITS = {"": "train", "train": "train", "val": "test", "valid": "test", "validation": "test", "test": "test"}


def read_entries(path: Path) -> dict[str, list[Entry]]:
    """The pictures of `train` and of `test`, in the order of the file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            names = _find_columns(rows.fieldnames or (), path)
            pictures: dict[tuple[str, str], list[Box]] = {}
            for number, row in enumerate(rows, 2):
                _add(pictures, {key: (row.get(name) or "").strip() for key, name in names.items()}, path, number)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not CSV in UTF-8 ({error}).") from None
    found: dict[str, list[Entry]] = {"train": [], "test": []}
    for (split, picture), boxes in pictures.items():
        found[split].append(Entry(picture, read_size(picture), boxes))
    return found


def _find_columns(header: object, path: Path) -> dict[str, str]:
    given = {str(name).strip().lower(): str(name) for name in header or ()}  # type: ignore[attr-defined]
    found = {key: given[n] for key, names in _COLUMNS.items() for n in names[::-1] if n in given}
    if missing := [key for key in _NEEDED if key not in found]:
        raise UserError(f"{path} has no column {', '.join(missing)}; its first line must name {', '.join(_NEEDED)}.")
    return found


def _add(pictures: dict[tuple[str, str], list[Box]], row: Mapping[str, str], path: Path, number: int) -> None:
    where, file = f"line {number} of {path}", row["file"]
    pure = PurePosixPath(file)
    if not file or pure.is_absolute() or ".." in pure.parts or "\0" in file:
        raise UserError(f"{where}: file must be a picture beside the CSV file, not {shown(file)}.")
    split = row.get("split", "").lower()
    if split not in _SPLITS:
        raise UserError(f"{where}: split must be train, val or test, not {shown(split)}.")
    boxes = pictures.setdefault((_SPLITS[split], str(path.parent / pure)), [])
    corners = [row[key] for key in ("left", "top", "right", "bottom")]
    if not any(corners):
        return
    try:
        left, top, right, bottom = map(float, corners)
    except ValueError:
        raise UserError(f"{where}: the corners must be four numbers, not {', '.join(corners)}.") from None
    boxes.append(
        Box(where, (left, top, right, bottom), row["class"], row.get("difficult", "") in ("1", "true", "True"))
    )
