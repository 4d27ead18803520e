"""Imports between the rooms of the package go one way, also inside functions: read from the source."""

import ast
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import resnets

ROOT = Path(resnets.__file__).parent


def imports(source: str) -> set[str]:
    """The rooms of the package that some source imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "resnets":
            parts = node.module.split(".")[1:]
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("resnets.")}
    return found


def rooms(sources: dict[str, str]) -> dict[str, set[str]]:
    """Each room with those that it imports; a module of the package itself is a room of its own."""
    edges = defaultdict(set)
    for path, source in sources.items():
        room = Path(path).parts[0].removesuffix(".py")
        edges[room] |= imports(source) - {room}
    return edges


def test_imports_between_rooms_have_no_cycle():
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.rglob("*.py")}
    del sources["__init__.py"]  # the front door names every room, and nobody may import it
    order = [*TopologicalSorter(rooms(sources)).static_order()]
    assert order.index("errors") < order.index("nn") < order.index("training") < order.index("cli")
    assert order[-1] == "__main__"


def test_nobody_imports_the_front_door():
    for path in ROOT.rglob("*.py"):
        if path.name != "__main__.py":
            public = imports(path.read_text()) & set(resnets.__all__)
            assert not public, f"{path.relative_to(ROOT)} imports {public} from resnets instead of from its room"


def test_only_the_command_line_imports_the_command_line():
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in ("cli", "__main__.py"):
            assert "cli" not in imports(path.read_text()), path.relative_to(ROOT)


def test_a_cycle_is_found_even_inside_a_function():
    sources = {"a/x.py": "from resnets.b import y", "b/y.py": "def f():\n    import resnets.a.x", "c.py": ""}
    with pytest.raises(CycleError):
        TopologicalSorter(rooms(sources)).prepare()


def test_importing_the_package_does_not_import_torch():
    code = "import sys, resnets; resnets.list_models(); print('torch' in sys.modules, 'rich' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]
