"""COCO's form: a JSON file with images, annotations and categories, and a folder of pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from resnets.data.annotations.pictures import Box, Entry
from resnets.errors import UserError, shown

_MOST = 1 << 31  # bytes; that of COCO's training pictures has 450 MB


def read_file(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST:
            raise UserError(f"{path} is larger than {_MOST >> 20} MiB.")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}).") from None
    if not isinstance(found, dict) or not all(
        isinstance(found.get(key), list) for key in ("images", "annotations", "categories")
    ):
        raise UserError(f"{path} is not COCO's form: it needs the lists images, annotations and categories.")
    return found


def list_classes(content: Mapping[str, Any], path: Path) -> dict[int, str]:
    """The names of the categories by id, in order."""
    found: dict[int, str] = {}
    for i, category in enumerate(content["categories"]):
        number, name = (
            _take(category, "id", int, f"{path}: categories[{i}]"),
            _take(category, "name", str, f"{path}: categories[{i}]"),
        )
        if number in found or name in found.values():
            raise UserError(f"{path}: categories[{i}] has an id or a name that another one has.")
        found[number] = name
    return dict(sorted(found.items()))


def _take(item: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where}.{key} must be {'text' if kind is str else 'a number'}, not {shown(value)}.")
    return value


def read_entries(content: Mapping[str, Any], path: Path, folder: Path, names: Mapping[int, str]) -> Iterator[Entry]:
    boxes: dict[int, list[Box]] = {}
    for i, one in enumerate(content["annotations"]):
        where = f"annotations[{i}]"
        image = _take(one, "image_id", int, f"{path}: {where}")
        boxes.setdefault(image, []).append(_read_box(one, f"{where} of {path}", f"{path}: {where}", names))
    known = set()
    for i, image in enumerate(content["images"]):
        where = f"{path}: images[{i}]"
        number, file = _take(image, "id", int, where), _take(image, "file_name", str, where)
        size = _take(image, "width", int, where), _take(image, "height", int, where)
        pure = PurePosixPath(file)
        if pure.is_absolute() or ".." in pure.parts or "\0" in file:
            raise UserError(f"{where}.file_name must be a file inside of {folder}, not {shown(file)}.")
        if number in known:
            raise UserError(f"{where} has the id {number}, which another image has.")
        known.add(number)
        yield Entry(str(folder / pure), size, boxes.get(number, []))
    if lost := next((image for image in boxes if image not in known), None):
        raise UserError(f"{path}: an annotation names the image {lost}, which is not among images.")


def _read_box(one: Mapping[str, Any], where: str, at: str, names: Mapping[int, str]) -> Box:
    box = one.get("bbox")
    if not (isinstance(box, list) and len(box) == 4 and all(isinstance(v, (int, float)) for v in box)):
        raise UserError(f"{at}.bbox must be four numbers: left, top, width, height; not {shown(box)}.")
    left, top, width, height = map(float, box)
    category = _take(one, "category_id", int, at)
    area = one.get("area")
    return Box(
        where,
        (left, top, left + width, top + height),
        names.get(category, f"category {category}"),
        crowd=bool(one.get("iscrowd", 0)),
        area=float(area) if isinstance(area, (int, float)) else None,
    )
