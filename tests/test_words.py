"""The package speaks plain technical English: words of an older voice do not come back."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = re.compile(r"\b(told|foretold|anew|begun|so many|passed over|which nobody)\b", re.IGNORECASE)
DOCS = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PARTICIPLES = {
    *("told", "settled", "fitted", "located", "chosen", "looked_at", "imported", "tested", "gathered", "filled"),
    *("began", "alike", "asked", "undisturbed", "foretold", "seen", "found", "taken", "wanted", "thinned", "cheap"),
}


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_word_of_the_older_voice(path):
    found = [
        f"line {i}: {line.strip()}" for i, line in enumerate(path.read_text().splitlines(), 1) if WORDS.search(line)
    ]
    assert not found


def test_functions_are_verbs():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert node.name.strip("_") not in PARTICIPLES, f"{path.relative_to(ROOT)}: {node.name}"
