"""Build the whole page. The same results give the same bytes."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.chain import parse_network
from resnets.differences import label_groups
from resnets.errors import UserError
from resnets.papers.numbers import quote_paper
from resnets.report.page import curves, provenance, signals, tables
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs, read_inputs
from resnets.runs import Summary
from resnets.version import __version__

# The browser enforces that the page loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
_TITLE = "Deep residual networks: the papers' numbers and ours"


def write_report(paths: Sequence[Path], out: Path, leave_out: Callable[[UserError], None] | None = None) -> Inputs:
    """Write a page of all results in files and folders; returns what it was made from."""
    inputs = read_inputs(paths, leave_out)
    text = build_page(inputs)
    make_folder_of(out)
    write_atomically(out, text.encode("utf-8", "backslashreplace"))  # names of files may be no UTF-8
    return inputs


def build_page(inputs: Inputs) -> str:
    library = _pack_plotly()
    sections = {
        "glance": ("At a glance", join([tables.build_glance(inputs), tables.build_key()])),
        "observations": ("The seven observations", tables.build_verdicts(inputs)),
        "figures": ("The papers' figures", curves.build_section(inputs)),
        "tables": ("The papers' tables", join(tables.build_section(e, inputs) for e in tables.TABLES)),
        "signals": ("How signals travel", signals.build_section(inputs)),
        "trainings": ("Other trainings", _build_trainings(inputs)),
    }
    sections = {name: (words, inner) for name, (words, inner) in sections.items() if inner}
    links = tag("ul", *(tag("li", tag("a", words, href=f"#{name}")) for name, (words, _) in sections.items()))
    body = [
        tag("header", tag("h1", _TITLE), *(tag("p", words) for words in _INTRODUCTION)),
        tag("nav", links, aria_label="Sections"),
        tag("main", *(tag("section", tag("h2", words), inner, id=i) for i, (words, inner) in sections.items())),
        tag(
            "aside",
            tag("h2", "Where the numbers come from"),
            _build_boxes(inputs),
            aria_label="Where the numbers come from",
        ),
        tag("footer", f"Made by resnets {__version__}; drawn by plotly.js (MIT licence)."),
        tag("script", library, type="text/plain", id="library"),
        tag("script", _read_file("page.js")),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", _TITLE),
        tag("style", _read_file("page.css")),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


_INTRODUCTION = (
    "v1 is “Deep Residual Learning for Image Recognition”, v2 “Identity Mappings in Deep Residual Networks”. Each "
    "of their numbers is followed by ours, where we have one. Budgets other than “paper” train shorter and smaller: "
    "their numbers can be compared in order, not in size, and each budget has its own column.",
    "Click one of our numbers to see where it comes from. Drag in a figure to zoom, double-click to zoom out, click a "
    "name to hide a curve.",
)


def _read_file(name: str) -> Html:
    return Html(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def _pack_plotly() -> Html:
    """plotly.js, compressed: otherwise it would be three quarters of the page."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError("the page needs the extra: pip install 'resnets[report]'.") from None
    return Html(base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode())


def _build_trainings(inputs: Inputs) -> Html:
    """Trainings that `resnets results` collected, by other recipes than the papers'."""
    rows = []
    for title, _, variant, result in _list_variants(inputs):
        spec, data = parse_network(result["network"]), result["data"]["name"]
        errors = tuple(run["result"]["test"]["error"] for run in result["runs"])
        number = provenance.build_button(title, str(Summary(errors)).replace("+-", "±"))
        cells = (data, tag("code", result["recipe"]["name"]), number, quote_paper(spec, data) or "-")
        rows.append(tag("tr", tag("th", spec.name + variant, scope="row"), *(tag("td", cell) for cell in cells)))
    header: list[Any] = ["network", "data", "recipe", "test error, ours", "the papers'"]
    return tables.build_table("Trainings by other recipes", header, rows) if rows else Html()


def _build_boxes(inputs: Inputs) -> Html:
    boxes = [
        provenance.build_box(provenance.name_box(budget, row), inputs.files[budget, row], one.result)
        for budget in inputs.budgets
        for row, one in inputs.found[budget].items()
    ]
    boxes += [provenance.build_box(title, path, result) for title, path, _, result in _list_variants(inputs)]
    return join(boxes)


def _list_variants(inputs: Inputs) -> Iterator[tuple[str, Path, str, dict[str, Any]]]:
    """Every variant of the other trainings: the title of its box, its file, how it differs, its results."""
    for path, groups in inputs.trainings.items():
        for i, (result, variant) in enumerate(zip(groups, label_groups(groups), strict=True), 1):
            yield path.stem if len(groups) == 1 else f"{path.stem}, variant {i}", path, variant, result
