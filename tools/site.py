"""A hook of mkdocs: files outside of docs/ that a page links to become part of the site, and so do the notebooks. A
line `::: resnets.NAME` becomes the documentation of that name, and `::: decisions` a list of the decisions.

A page may link to `../results/hour/x.json` or `../SECURITY.md`, as it does on a code host. The site has a copy of each
such file below `source/`, so every link works without a network.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs runs this file alone
from tools.api_reference import document

ROOT = Path(__file__).parents[1]
COPIES = "source"
EXAMPLES = "examples"
_LINK = re.compile(r'(\]\(|src="|srcset=")(?!https?:|data:|#)([^)"#\s]+)')
_NAME = re.compile(r"^::: resnets\.(\w+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks as pages, and a copy of each file that pages link to and docs/ does not have."""
    for notebook in sorted((ROOT / EXAMPLES).glob("*.ipynb")):
        name = f"{EXAMPLES}/{notebook.stem}.md"
        files.append(File.generated(config, name, content=render_notebook(notebook.read_text(encoding="utf-8"))))
    waiting = list(files.documentation_pages())
    while waiting:
        for path in find_outside(waiting.pop()):
            if path.is_dir() or files.get_file_from_path(copy := name_copy(path)) is not None:
                continue
            file = File.generated(config, copy, abs_src_path=str(path))
            files.append(file)
            if file.is_documentation_page():
                waiting.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside of docs/ into links to their copies, and names into their documentation."""
    markdown = rewrite_links(markdown, page.file)
    markdown = _NAME.sub(lambda line: f"{document(line[1])}\n", markdown)
    return markdown.replace("::: decisions", list_decisions())


def find_outside(file: File) -> set[Path]:
    """The files that a page links to and that are not below docs/."""
    text = _CODE.sub("", file.content_string)
    found = {resolve(file, target) for _, target in _LINK.findall(text)}
    return {path for path in found if path.exists() and path.is_relative_to(ROOT) and not _is_page(path)}


def rewrite_links(markdown: str, file: File) -> str:
    def rewrite(link: re.Match[str]) -> str:
        path = resolve(file, link[2])
        if not path.exists() or not path.is_relative_to(ROOT):
            return link[0]
        return link[1] + posixpath.relpath(name_copy(path), posixpath.dirname(file.src_uri))

    parts = re.split(f"({_CODE.pattern})", markdown, flags=_CODE.flags)
    return "".join(part if part.startswith("```") else _LINK.sub(rewrite, part) for part in parts)


def resolve(file: File, target: str) -> Path:
    """What a link of a page means on the disk. A generated page of a notebook links as the notebook does."""
    if file.src_uri.startswith(f"{EXAMPLES}/"):
        folder = ROOT / EXAMPLES
    elif file.src_uri.startswith(f"{COPIES}/"):
        folder = (ROOT / file.src_uri.removeprefix(f"{COPIES}/")).parent
    else:
        folder = (ROOT / "docs" / file.src_uri).parent
    return Path(posixpath.normpath(folder / target))


def _is_page(path: Path) -> bool:
    return path.is_relative_to(ROOT / "docs") or path.is_relative_to(ROOT / EXAMPLES)


def name_copy(path: Path) -> str:
    """Where the site has a file of the checkout."""
    inside = path.relative_to(ROOT).as_posix()
    if inside.startswith("docs/"):
        return inside.removeprefix("docs/")
    if path.is_dir():  # of notebooks
        return "tutorials/index.md"
    if inside.startswith(f"{EXAMPLES}/"):
        return f"{inside.removesuffix('.ipynb')}.md"
    return f"{COPIES}/{inside}"


def list_decisions() -> str:
    """A line for each decision: its number and title."""
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    return "\n".join(
        f"- [{each.read_text().partition(chr(10))[0].removeprefix('# ')}]({each.name})" for each in records
    )


# --- notebooks --------------------------------------------------------------------------------


def render_notebook(text: str) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed and drew."""
    return "\n\n".join(block for cell in json.loads(text)["cells"] for block in _render_cell(cell)) + "\n"


def _render_cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *filter(None, map(_render_output, cell["outputs"]))]


def _render_output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        png = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="{_read_text(data) or "drawn by the code above"}" src="data:image/png;base64,{png}">'
    text = "".join(output.get("text", "")) or _read_text(data)
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _read_text(data: dict[str, Any]) -> str:
    text = "".join(data.get("text/plain", ""))
    return "" if text.startswith("<") else text
