"""Pictures with boxes around their objects: `voc:DIR`, `coco:JSON:DIR`, `yolo:DIR`, `csv:FILE`. No torch here.

Boxes are left, top, right, bottom in pixels. A picture reaches from 0 to its width and height, so the box of a whole
picture is (0, 0, width, height).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from resnets.data.annotations import coco, table, voc, yolo
from resnets.data.annotations.pictures import AnnotatedData, BoxJudge, Entry
from resnets.errors import UserError

KINDS = {
    "voc": "voc:DIR or voc:DIR:TRAIN:TEST",
    "coco": "coco:JSON:DIR or coco:JSON:DIR:TESTJSON:TESTDIR",
    "yolo": "yolo:DIR",
    "csv": "csv:FILE",
}

Parts = tuple["tuple[str, ...] | None", Sequence[Entry], "Sequence[Entry] | None"]  # classes, if the form names them


def open_annotated(
    word: str,
    *,
    classes: Sequence[str] | None = None,
    bad_boxes: str = "error",
    warn: Callable[[str], None] = lambda sentence: None,
) -> AnnotatedData:
    """Open the pictures that a word names.

    The classes are those that the form names, else the names of the objects to train on, sorted; or `classes`, those
    of a detector that is tested. `bad_boxes` says what becomes of boxes without area, outside of the picture or of
    unknown classes.

    >>> from resnets.data.annotations import open_annotated
    >>> open_annotated("voc:VOCdevkit").classes
    """
    kind, _, rest = word.partition(":")
    if kind not in KINDS or not rest:
        raise UserError(f"pictures with boxes are written as {'; '.join(KINDS.values())}; not {word!r}.")
    judge = BoxJudge(bad_boxes, warn)
    paths, others = _split(kind, rest)
    named, train, test = _READERS[kind](paths, others)
    if classes is None:
        classes = named or tuple(sorted({box.name for entry in train for box in entry.boxes}))
    if not classes:
        raise UserError(f"{word} has no object to learn.")
    if not train and not test:
        raise UserError(f"{word} has no pictures.")
    boxed = judge.collect(train or test or (), classes)
    tests = judge.collect(test, classes) if test and train else None
    absolute = [str(Path(path).expanduser().resolve()) for path in paths]
    place = ":".join([kind, *absolute, *others])
    return AnnotatedData(word, place, tuple(classes), boxed, tests, judge.finish())


def _split(kind: str, rest: str) -> tuple[list[str], list[str]]:
    """The paths of a word, and its other words: the lists of VOC."""
    words = rest.split(":")
    most = {"voc": 3, "coco": 4, "yolo": 1, "csv": 1}[kind]
    if len(words) > most or not all(words) or (kind == "coco" and len(words) % 2):
        raise UserError(f"pictures with boxes are written as {KINDS[kind]}, not {kind}:{rest}.")
    return (words[:1], words[1:]) if kind == "voc" else (words, [])


def _folder(path: str) -> Path:
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"there is no folder {root} to take pictures from.")
    return root


def _read_voc(paths: list[str], lists: list[str]) -> Parts:
    root = _folder(paths[0])
    places = voc.find_places(root)
    train, test = voc.choose_lists(places, root) if not lists else (lists[0], lists[1] if len(lists) > 1 else None)
    entries = [list(voc.read_entries(voc.find_pictures(places, words))) for words in (train, test) if words]
    return None, entries[0], entries[1] if len(entries) > 1 else None


def _read_coco(paths: list[str], others: list[str]) -> Parts:
    parts: list[list[Entry]] = []
    names: dict[int, str] = {}
    for i in range(0, len(paths), 2):
        path, folder = Path(paths[i]).expanduser(), _folder(paths[i + 1])
        content = coco.read_file(path)
        found = coco.list_classes(content, path)
        names = names or found
        if found != names:
            raise UserError(f"{path} has other categories than {paths[0]}.")
        parts.append(list(coco.read_entries(content, path, folder, found)))
    return tuple(names.values()), parts[0], parts[1] if len(parts) > 1 else None


def _read_yolo(paths: list[str], others: list[str]) -> Parts:
    root = _folder(paths[0])
    classes, (train, test) = yolo.read_classes(root), yolo.find_splits(root)
    return classes, list(yolo.read_entries(*train, classes)), list(yolo.read_entries(*test, classes)) if test else None


def _read_table(paths: list[str], others: list[str]) -> Parts:
    path = Path(paths[0]).expanduser()
    if os.path.isdir(path):
        found = sorted(path.glob("*.csv"))
        if len(found) != 1:
            raise UserError(f"the folder {path} must have one CSV file, and has {len(found)}.")
        path = found[0]
    parts = table.read_entries(path)
    return None, parts["train"], parts["test"] or None


_READERS: dict[str, Callable[[list[str], list[str]], Parts]] = {
    "voc": _read_voc,
    "coco": _read_coco,
    "yolo": _read_yolo,
    "csv": _read_table,
}
