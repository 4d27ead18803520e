"""The pages of the project and the code in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def find_blocks(text: str, *languages: str) -> list[str]:
    return [block for language, block in BLOCK.findall(text) if language in languages]


def find_lines(text: str) -> list[str]:
    """The command lines of a page, without comments and without what only shows the syntax."""
    indented = re.findall(r"^    (.*)", BLOCK.sub("", text), re.MULTILINE)
    lines = "\n".join([*find_blocks(text, ""), *indented]).replace("\\\n", " ").splitlines()
    commands = (re.split(r"\s#\s|\s>\s", line)[0].strip() for line in lines)
    return [command for command in commands if not re.search(r"\[--|\.\.\.", command)]


def find_commands(text: str) -> list[str]:
    """The command lines of `resnets`, also those that torchrun starts."""
    lines = (re.sub(r"^torchrun .* -m resnets ", "resnets ", line) for line in find_lines(text))
    return [line for line in lines if line.startswith("resnets ")]
