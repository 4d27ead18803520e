"""Read the published forms of the sets; each reader yields `Rows`, one array for each file of images."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from resnets.data.dataset_spec import RECORD, DatasetSpec, Layout, Rows
from resnets.data.idx import read_idx
from resnets.data.unpickle import read_batch
from resnets.errors import UserError
from resnets.progress import Progress

_LABELS = 1 << 22  # bytes of a list of labels; a longer one is cut off, so it does not parse
_PIXELS = 1 << 25  # of a sheet of images; CIFAR's have ten million pixels

Reader = Callable[[Layout, Mapping[str, bytes], str], Iterator[Rows]]


def read_files(spec: DatasetSpec, layout: Layout, files: Mapping[str, bytes], where: str) -> Rows:
    """Read the rows of a layout's files, in official order, and check each file whose hash is spec."""
    parts = []
    for number, rows in enumerate(READERS[layout.form](layout, files, where)):
        spec.check_batch(number, rows, f"{where}/{layout.files[number]}")
        parts.append(rows)
        if sum(map(len, parts)) > sum(spec.counts):  # before more of them are read
            raise UserError(f"{where} is not {spec.title}: it has more than {sum(spec.counts)} images.")
    return np.concatenate(parts)


def read_class_folders(spec: DatasetSpec, root: Path, progress: Progress) -> Rows:
    """Read `train/<class>/*.png` and `test/<class>/*.png`, in canonical order."""
    paths = [
        [
            (label, file)
            for label, name in enumerate(spec.classes)
            for file in sorted((root / part / name).glob("*.png"))
        ]
        for part in ("train", "test")
    ]
    for part, count, listed in zip(("train", "test"), spec.counts, paths, strict=True):
        if len(listed) != count:
            raise UserError(f"{root / part} is not {spec.title}'s: it has {len(listed)} PNG files, not {count}.")
    rows = np.empty(sum(spec.counts), RECORD)
    with progress.task(f"reading {root}", len(rows)) as advance:
        for row, (label, file) in zip(rows, [*paths[0], *paths[1]], strict=True):
            row["label"] = label
            row["image"] = _decode(file.read_bytes(), (32, 32), str(file)).transpose(2, 0, 1)
            advance(1)
    return spec.canonical(rows)


def _binary_fine(layout: Layout, files: Mapping[str, bytes], where: str) -> Iterator[Rows]:
    """CIFAR-100 has the label of the superclass before the label."""
    for raw in _binary(layout, files, where, np.dtype([("coarse", "u1"), ("row", RECORD)])):
        yield np.ascontiguousarray(raw["row"])


def _binary(layout: Layout, files: Mapping[str, bytes], where: str, record: np.dtype[Any] = RECORD) -> Iterator[Rows]:
    for name in layout.train + layout.test:
        if len(files[name]) % record.itemsize:
            raise UserError(f"{where}/{name} is broken: its length is not a multiple of {record.itemsize} bytes.")
        yield np.frombuffer(files[name], record)


def _python(layout: Layout, files: Mapping[str, bytes], where: str) -> Iterator[Rows]:
    for name in layout.train + layout.test:
        pixels, labels = read_batch(files[name], f"{where}/{name}")
        yield _rows(pixels, labels, f"{where}/{name}")


def _sheets(layout: Layout, files: Mapping[str, bytes], where: str) -> Iterator[Rows]:
    """A PNG for each batch, with an image in each row of pixels, and two lists of labels."""
    for sheets, list_name in ((layout.train, layout.extra[0]), (layout.test, layout.extra[1])):
        try:
            labels = [int(v) for v in json.loads(files[list_name][: _LABELS + 1])]
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise UserError(f"{where}/{list_name} is broken: it must be a JSON list of labels.") from None
        each = len(labels) // len(sheets)
        for number, name in enumerate(sheets):
            lines = _decode(files[name], (32 * 32, each), f"{where}/{name}")
            yield _rows(lines.transpose(0, 2, 1), labels[number * each :][:each], f"{where}/{name}")


def _idx(layout: Layout, files: Mapping[str, bytes], where: str) -> Iterator[Rows]:
    """Grey images of 28x28: copied to three channels, with two more pixels of black background on each side."""
    for name, list_name in zip(layout.train + layout.test, layout.extra, strict=True):
        grey, labels = (read_idx(files[file], f"{where}/{file}") for file in (name, list_name))
        if grey.shape[1:] != (28, 28) or labels.ndim != 1:
            raise UserError(f"{where}/{name} and {list_name} are not images of 28x28 and their labels.")
        _require_matching(len(grey), labels.tolist(), f"{where}/{name}")
        rows = np.zeros(len(grey), RECORD)
        rows["label"] = labels
        rows["image"][:, :, 2:-2, 2:-2] = grey[:, None]
        yield rows


def _require_matching(images: float, labels: list[int], where: str) -> None:
    if images != len(labels) or not all(0 <= label < 256 for label in labels):
        raise UserError(f"{where} is broken: it has {len(labels)} labels and {images:g} images.")


def _rows(pixels: npt.NDArray[np.uint8], labels: list[int], where: str) -> Rows:
    _require_matching(pixels.size / 3072, labels, where)
    rows = np.empty(len(labels), RECORD)
    rows["label"] = labels
    rows["image"] = pixels.reshape(-1, 3, 32, 32)
    return rows


def _decode(data: bytes, size: tuple[int, int], where: str) -> npt.NDArray[np.uint8]:
    """Pixels (height, width, 3) of a PNG of that size (width, height)."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.size == size and image.mode == "RGB" and size[0] * size[1] <= _PIXELS:
                return np.asarray(image)
            found = f"it is {image.mode} {image.size[0]}x{image.size[1]}"
    except Exception:  # a broken PNG can raise anything
        found = "it cannot be decoded"
    raise UserError(f"{where} is not an RGB PNG of {size[0]}x{size[1]} pixels: {found}.")


READERS: dict[str, Reader] = {
    "binary": _binary,
    "binary_fine": _binary_fine,
    "python": _python,
    "sheets": _sheets,
    "idx": _idx,
}
