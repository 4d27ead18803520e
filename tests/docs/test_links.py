"""Links of pages and notebooks lead to files and headings; external ones are listed here, and not fetched."""

import json
import re
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import BLOCK, NOTEBOOKS, PAGES, ROOT, name_page

ALL = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs" / "decisions").glob("*.md")), *NOTEBOOKS]
LINK = re.compile(r'(?:\]\(|src="|srcset="|href=")([^)"\s]+)')
HOSTS = {"github.com"}  # that pages link to


def read_text(page):
    """The text of a page; of a notebook its Markdown."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def find_headings(text):
    """The anchors of a page, as code hosts and the site name them."""
    titles = re.findall(r"^#+ (.*)", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def find_links(page):
    return [target for target in LINK.findall(BLOCK.sub("", read_text(page))) if not target.startswith("data:")]


@pytest.mark.parametrize("page", ALL, ids=name_page)
def test_links_lead_to_files_and_headings(page):
    for target in find_links(page):
        if "://" in target:
            assert urlsplit(target).scheme == "https", target
            assert urlsplit(target).hostname in HOSTS, f"{target}: is it meant? Then add its host to the list above."
            continue
        file, _, heading = target.partition("#")
        linked = page.parent / file if file else page
        assert linked.exists(), target
        assert linked.resolve().is_relative_to(ROOT), target
        assert not heading or heading in find_headings(read_text(linked)), target


def test_headings_of_a_page_have_names_of_their_own():
    for page in PAGES:
        titles = re.findall(r"^#+ (.*)", BLOCK.sub("", read_text(page)), re.MULTILINE)
        assert len(titles) == len(set(titles)), name_page(page)
