"""The site: mkdocs builds it without a warning, its links lead somewhere, and it fetches nothing."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

import resnets
from tests.docs.pages import DOCS, NOTEBOOKS, ROOT

FETCHED = {"img": "src", "script": "src", "link": "href", "source": "srcset", "iframe": "src"}


class Page(HTMLParser):
    """The anchors of a page, what it links to and what it fetches."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in FETCHED and found.get(FETCHED[tag]) and found.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(found[FETCHED[tag]])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_and_notebook_is_there(site):
    for path in DOCS:
        assert (site / path.relative_to(ROOT / "docs").with_suffix(".html")).is_file()
    for path in NOTEBOOKS:
        assert (site / "examples" / f"{path.stem}.html").is_file()


def test_links_lead_to_pages_and_anchors(pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"


def test_nothing_is_fetched_from_elsewhere(pages, site):
    for path, page in pages.items():
        for link in page.fetched:
            if not link.startswith("data:"):
                assert not urlsplit(link).scheme, f"{path.name}: {link}"
                assert not link.startswith("//")
                assert (path.parent / link).resolve().is_file(), f"{path.name}: {link}"
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"@import|url\(['\"]?(https?:)?//", styles)


def test_search_finds_words_of_all_pages(site):
    script = (site / "search" / "search_index.js").read_text()
    index = json.loads(script.removeprefix("var __index = "))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"index.html", "api.html", "tutorials/equation.html", "glossary.html", "examples/train.html"} <= found
    assert any("bottleneck" in entry["text"] for entry in index["docs"])


def test_the_reference_has_every_public_name_once(pages, site):
    text = (ROOT / "docs" / "api.md").read_text()
    listed = re.findall(r"^::: resnets\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(set(resnets.__all__) - {"__version__"})
    assert set(listed) <= pages[site / "api.html"].anchors
