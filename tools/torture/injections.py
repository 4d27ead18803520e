"""Hostile names: escapes for terminals, tags for browsers, formulas for spreadsheets."""

from __future__ import annotations

import csv
import json
import random
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools.torture.command import Done, run
from tools.torture.promises import BrokenPromiseError
from tools.torture.results import RESULTS
from tools.torture.runs import Prepared
from tools.torture.weights import split_header, with_header

TAG = "x-torture"
NAMES = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", f"<{TAG}>", f"</script><{TAG}>", f"<img src=x onerror='{TAG}'>",
    f"'><{TAG} a='", f'"><{TAG} a="', f"]]><{TAG}>", f"--><{TAG}>", f"</title><{TAG}>", "=1+1", "+1+1", "-1+1",
    "@SUM(A1)", "\t=1", '=cmd|" /C calc"!A0', 'a,b"c', "a\nb", "a\r\nb", "\u202eabc", "$(touch x)", "[bold]x[/]",
    "[/nothing]", "a|b", "\x9b31m", "\x08\x08x", "\u2028", "{x}", "%s%n", "$x^2$", "$\\notatex$", "_a",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Tags(HTMLParser):
    """Finds our tag, and handlers that name it."""

    found = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        handlers = [value for key, value in attrs if key.startswith("on")]
        self.found |= tag == TAG or any(TAG in (value or "") for value in handlers)


def check_page(text: str, what: str) -> None:
    parser = _Tags()
    parser.feed(text)
    if parser.found:
        raise BrokenPromiseError("unsafe output", f"{what}: a name becomes a tag of the page")


def check_picture(path: Path, what: str) -> None:
    """An SVG file is well formed, and has no element of ours."""
    try:
        names = [element.tag for element in ElementTree.parse(path).iter()]
    except ElementTree.ParseError as error:
        raise BrokenPromiseError("unsafe output", f"{what}: the picture is not XML") from error
    if any(TAG in str(name) for name in names):
        raise BrokenPromiseError("unsafe output", f"{what}: a name becomes an element of the picture")


def check_csv(done: Done) -> None:
    if done.code:
        return
    for row in csv.reader(done.out.splitlines(keepends=True)):
        if len(row) != 5:
            raise BrokenPromiseError("unsafe output", "predict --csv: a name makes other columns")
        if any(cell.startswith(FORMULA) for cell in row):
            raise BrokenPromiseError("unsafe output", "predict --csv: a cell is a formula")


class Injections(Prepared):
    """One hostile name in one place."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        run("plot", self.run, "-o", "c.svg")
        run("report", RESULTS / "cifar", "-o", "page.html")

    def attack(self, draw: random.Random, folder: Path) -> None:
        name = draw.choice(NAMES)
        draw.choice((self._predict, self._check, self._runs, self._report, self._words))(name, draw, folder)

    def _predict(self, name: str, draw: random.Random, folder: Path) -> None:
        """In the names of classes and in that of the picture."""
        header, tensors = split_header(self.ours)
        classes = [f"{name}{i}" for i in range(10)]
        header["__metadata__"]["classes"] = json.dumps(classes)
        (folder / "net.safetensors").write_bytes(with_header(header, tensors))
        picture = folder / f"{name.replace('/', '')}.jpg" if draw.random() < 0.5 else folder / "p.jpg"
        picture.write_bytes(self.picture if draw.random() < 0.7 else b"no picture")
        form = draw.choice((["--csv"], ["--json"], [], ["--cam", "cam.png"]))
        given = picture.name if not picture.name.startswith("-") else picture
        done = run("predict", given, "--weights", "net.safetensors", *form)
        if form == ["--csv"]:
            check_csv(done)
        if form == ["--json"] and done.code != 2:
            json.loads(done.out)

    def _check(self, name: str, draw: random.Random, folder: Path) -> None:
        """In the names of a class folder and of its files."""
        inner = name.replace("/", "")
        for place in ("good", inner):
            (folder / "set" / place).mkdir(parents=True, exist_ok=True)
            (folder / "set" / place / "p.jpg").write_bytes(self.picture)
        (folder / "set" / inner / f"{inner}.jpg").write_bytes(b"no picture")
        run("data", "check", "set")

    def _runs(self, name: str, draw: random.Random, folder: Path) -> None:
        """In what a run says of itself, and in the name of its folder."""
        plain = name.replace("/", "")
        place = folder / "runs" / (plain if draw.random() < 0.5 else self.run.name)
        shutil.copytree(self.run, place)
        config = json.loads((place / "config.json").read_text())
        insert(config, name, draw)
        (place / "config.json").write_text(json.dumps(config))
        command = draw.choice(("runs", "plot", "results", "analyze"))
        if command == "plot":
            if run("plot", place, "-o", "curves.svg").code == 0:
                check_picture(folder / "curves.svg", "plot")
        elif command == "results":
            run("results", place, "-o", "out.json")
        else:
            run(command, "runs" if command == "runs" else place)

    def _report(self, name: str, draw: random.Random, folder: Path) -> None:
        """In any text of a file of results."""
        kinds = ("hour/*.json", "cifar/*.json", "analysis/*/*.json")
        data = json.loads(draw.choice(sorted(RESULTS.glob(draw.choice(kinds)))).read_text())
        insert(data, name, draw)
        (folder / "a.json").write_text(json.dumps(data))
        if run("report", "a.json", "-o", "page.html").code == 0:
            check_page((folder / "page.html").read_text(), "report")

    def _words(self, name: str, draw: random.Random, folder: Path) -> None:
        """On the command line."""
        command = draw.choice(("info", "models", "eval", "predict", "train", "runs", "export", name))
        run(command, name)


def insert(data: Any, name: str, draw: random.Random) -> None:
    """Put the name in the place of one text."""
    places = list(_texts(data))
    holder, key = draw.choice(places)
    holder[key] = name if draw.random() < 0.5 else holder[key] + name


def _texts(data: Any) -> Any:
    for key in range(len(data)) if isinstance(data, list) else list(data):
        if isinstance(data[key], str):
            yield data, key
        elif isinstance(data[key], (list, dict)):
            yield from _texts(data[key])
