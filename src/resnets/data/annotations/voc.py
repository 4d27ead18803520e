"""VOC's form: Annotations/*.xml, JPEGImages/* and lists of names in ImageSets/Main.

`voc:DIR` takes the usual lists, `voc:DIR:TRAIN:TEST` others: `train`, `2007/trainval+2012/trainval` in a devkit of
several years, `val@1000` for a thousand of a list, always the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from resnets.data.annotations.pictures import Box, Entry
from resnets.data.annotations.sizes import read_size
from resnets.data.files import SUFFIXES
from resnets.errors import UserError, shown

_MOST = 1 << 24  # bytes of an XML file
_DEEPEST = 64
_YEAR = re.compile(r"VOC(\d{4})")


# --- XML, without what makes it dangerous -----------------------------------------------------


@dataclass
class Node:
    """An element: its text and those below it."""

    name: str
    text: str = ""
    below: list[Node] = field(default_factory=list)

    def find(self, path: str) -> Node | None:
        node: Node | None = self
        for name in path.split("/"):
            node = next((child for child in node.below if child.name == name), None) if node else None
        return node

    def read(self, path: str, default: str = "") -> str:
        node = self.find(path)
        return node.text.strip() if node else default


class _RefusedError(Exception):
    pass


def read_xml(path: Path) -> Node:
    """The elements of a file. A document type, which could define entities, is refused."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    if len(data) > _MOST:
        raise UserError(f"{path} is larger than {_MOST >> 20} MiB, so it is no annotation of a picture.")
    root = Node("")
    stack = [root]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > _DEEPEST:
            raise _RefusedError(f"its elements are nested deeper than {_DEEPEST} levels")
        stack[-1].below.append(Node(name))
        stack.append(stack[-1].below[-1])

    def end(name: str) -> None:
        stack.pop()

    def add_text(text: str) -> None:
        stack[-1].text += text

    def refuse(*details: object) -> None:
        raise _RefusedError("it has a document type, which annotations do not need")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, add_text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except _RefusedError as error:
        raise UserError(f"{path} is refused: {error}.") from None
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise UserError(f"{path} is not XML ({error}).") from None
    return root.below[0]


# --- lists ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A folder with Annotations, JPEGImages and ImageSets/Main."""

    root: Path

    def list_file(self, name: str) -> Path:
        return self.root / "ImageSets" / "Main" / f"{name}.txt"

    def has(self, name: str) -> bool:
        return self.list_file(name).is_file()

    def names(self, name: str) -> list[str]:
        path = self.list_file(name)
        try:
            lines = path.read_text("utf-8", "surrogateescape").splitlines()
        except OSError as error:
            known = sorted(p.stem for p in path.parent.glob("*.txt") if "_" not in p.stem)
            there = f"; there are {', '.join(known)}" if known else ""
            raise UserError(f"cannot read the list {path}: {error.strerror}{there}.") from None
        found = [line.split()[0] for line in lines if line.strip()]
        if wrong := next((n for n in found if "/" in n or "\\" in n or n.startswith(".")), None):
            raise UserError(f"{path} has the name {shown(wrong)}, which is not the name of a picture.")
        return found


def find_places(root: Path) -> dict[str, Place]:
    """The years of a devkit, or one place without a year."""
    if (root / "Annotations").is_dir():
        return {"": Place(root)}
    inner = root / "VOCdevkit"
    if inner.is_dir():
        return find_places(inner)
    found = {m[1]: Place(p) for p in sorted(root.glob("VOC*")) if (m := _YEAR.fullmatch(p.name)) and p.is_dir()}
    found = {year: place for year, place in found.items() if (place.root / "Annotations").is_dir()}
    if not found:
        raise UserError(
            f"{root} is not VOC's form: it has neither a folder Annotations nor folders such as VOC2007 with one."
        )
    return found


def choose_lists(places: dict[str, Place], root: Path) -> tuple[str, str | None]:
    """The lists to train and to test on if the user names none: trainval and test, or train and val."""
    tested = [year for year, place in places.items() if place.has("test")]
    prefix = {year: f"{year}/" if year else "" for year in places}
    if tested and all(place.has("trainval") for place in places.values()):
        return "+".join(f"{prefix[year]}trainval" for year in places), f"{prefix[tested[0]]}test"
    if all(place.has("train") for place in places.values()):
        test = [f"{prefix[year]}val" for year, place in places.items() if place.has("val")]
        return "+".join(f"{prefix[year]}train" for year in places), "+".join(test) or None
    raise UserError(f"{root} has no list train or trainval in ImageSets/Main; name the lists: voc:DIR:TRAIN:TEST.")


def find_pictures(places: dict[str, Place], words: str) -> list[tuple[Place, str]]:
    """The pictures of lists such as `2007/trainval+2012/trainval` or `val@1000`."""
    found: list[tuple[Place, str]] = []
    for word in words.split("+"):
        match = re.fullmatch(r"(?:(\d{4})/)?([A-Za-z0-9_.-]+?)(?:@([1-9]\d{0,8}))?", word)
        if not match or match[2].startswith("."):
            raise UserError(f"a list of pictures is written as train, 2007/train or val@1000, not {shown(word)}.")
        year, name, count = match[1] or "", match[2], match[3]
        if not year and len(places) == 1:
            year = next(iter(places))
        if year not in places:
            known = ", ".join(f"{y}/{name}" for y in places if y)
            raise UserError(
                f"the list {word} needs one of the years here: {known}." if known else f"there is no year {year} here."
            )
        names = places[year].names(name)
        found += [(places[year], n) for n in take_evenly(names, int(count) if count else len(names), word)]
    return found


def take_evenly(names: list[str], count: int, what: str) -> list[str]:
    """`count` of the names, evenly spaced in their order."""
    if count > len(names):
        raise UserError(f"{what} asks for more pictures than the {len(names):,} there are.")
    return [names[i * len(names) // count] for i in range(count)]


# --- a picture --------------------------------------------------------------------------------


def read_entries(pictures: list[tuple[Place, str]]) -> Iterator[Entry]:
    for place, name in pictures:
        yield _read_entry(place, name)


def _read_entry(place: Place, name: str) -> Entry:
    path = place.root / "Annotations" / f"{name}.xml"
    node = read_xml(path)
    picture = _find_file(place.root / "JPEGImages", name, node.read("filename"))
    size = node.read("size/width"), node.read("size/height")
    width, height = (int(side) if side.isascii() and side.isdecimal() and len(side) < 9 else 0 for side in size)
    if not (width and height):
        width, height = read_size(picture)
    boxes = [_read_box(path, i, child) for i, child in enumerate(_objects(node), 1)]
    return Entry(picture, (width, height), boxes)


def _objects(node: Node) -> list[Node]:
    return [child for child in node.below if child.name == "object"]


def _find_file(folder: Path, name: str, filename: str) -> str:
    """The picture: NAME.jpg, else the file that the annotation names, else NAME with another suffix."""
    usual = folder / f"{name}.jpg"
    if usual.is_file():
        return str(usual)
    named = [filename] if filename and "/" not in filename and "\\" not in filename and "\0" not in filename else []
    for other in (*named, *(name + suffix for suffix in SUFFIXES)):
        if (folder / other).is_file():
            return str(folder / other)
    return str(usual)  # which is missing, and is named when it is decoded


def _read_box(path: Path, number: int, node: Node) -> Box:
    """Corners count pixels from 1 in VOC, with the last pixel inside."""

    def read(name: str) -> float:
        try:
            return float(node.read(f"bndbox/{name}", "nan"))
        except ValueError:
            return float("nan")

    corners = read("xmin") - 1, read("ymin") - 1, read("xmax"), read("ymax")
    return Box(f"object {number} of {path}", corners, node.read("name"), node.read("difficult") == "1")
