"""Build the whole page. The same results give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from resnets.atomic import make_folder_of, write_atomically
from resnets.errors import UserError
from resnets.report.page import curves, explorer, hero, observations, provenance, signals, tables, trainings
from resnets.report.page.html import Html, join, tag
from resnets.report.page.inputs import Inputs, read_inputs
from resnets.version import __version__

# The browser enforces that the page loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_TITLE = "Deep residual networks: the papers' numbers and ours"
_SCRIPTS = ("elements.js", "chart.js", "unit.js", "explorer.js", "page.js")


def write_report(paths: Sequence[Path], out: Path, leave_out: Callable[[UserError], None] | None = None) -> Inputs:
    """Write a page of all results in files and folders; returns what it was made from."""
    inputs = read_inputs(paths, leave_out)
    text = build_page(inputs)
    make_folder_of(out)
    write_atomically(out, text.encode("utf-8", "backslashreplace"))  # names of files may be no UTF-8
    return inputs


def build_page(inputs: Inputs) -> str:
    sections = {
        "explorer": ("Compare two units", explorer.build_section(inputs)),
        "observations": ("Seven observations", observations.build_section(inputs)),
        "reading": ("How to read our numbers", _build_reading()),
        "tables": ("The papers' tables", tables.build_section(inputs)),
        "figures": ("The papers' figures", curves.build_section(inputs)),
        "signals": ("How signals travel", signals.build_section(inputs)),
        "trainings": ("Other trainings", trainings.build_section(inputs)),
    }
    sections = {name: (words, inner) for name, (words, inner) in sections.items() if inner}
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, (words, _) in sections.items()]
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("header", tag("h1", _TITLE), tag("p", _INTRODUCTION)),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag(
            "main",
            hero.build(inputs),
            *(tag("section", tag("h2", words), inner, id=name) for name, (words, inner) in sections.items()),
            id="content",
        ),
        tag(
            "aside",
            tag("h2", "Where the numbers come from"),
            _build_boxes(inputs),
            aria_label="Where the numbers come from",
        ),
        tag("footer", f"Made by resnets {__version__}."),
        *(tag("script", _read_file(name)) for name in _SCRIPTS),
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
    "v1 is “Deep Residual Learning for Image Recognition”, v2 “Identity Mappings in Deep Residual Networks”, by He, "
    "Zhang, Ren and Sun. Here is what they found, their units to take apart, and our numbers beside theirs."
)


_READING = (
    "The papers train for 64,000 iterations and repeat it five times. Our budgets train less: shorter, on smaller "
    "images, some with fewer filters. So compare the order of our rows with the papers', not the size of our errors. "
    "Each table says what was scaled. A verdict says whether a row stands in the same place of the order:",
    "Behind ± is the deviation between seeds. With one seed the interval is that of the test, 95 % for its number of "
    "images. Click a number to see its command, commit, machine and seeds. Move over a chart, or press the arrow keys "
    "in it, to read its values; click a name below it to hide a line.",
)


def _build_reading() -> Html:
    """What a budget is, what the verdicts mean, how to get at the origin of a number."""
    before, after = _READING
    return join([tag("p", before), tables.build_key(), tag("p", after)])


def _read_file(name: str) -> Html:
    return Html(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _build_boxes(inputs: Inputs) -> Html:
    boxes = [
        provenance.build_box(provenance.name_box(budget, row), inputs.files[budget, row], one.result)
        for budget in inputs.budgets
        for row, one in inputs.found[budget].items()
    ]
    boxes += [provenance.build_box(title, path, result) for title, path, _, result in trainings.list_variants(inputs)]
    return join(boxes)
