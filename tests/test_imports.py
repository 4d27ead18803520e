"""The direction of imports between the rooms, read from the source."""

import ast
import subprocess
import sys
from pathlib import Path

import resnets

ROOT = Path(resnets.__file__).parent
# room -> rooms of the package that it may import at module level or inside functions
ALLOWED = {
    "errors": set(),
    "interrupt": set(),
    "text": set(),
    "atomic": {"errors"},
    "bounded": {"errors"},
    "cache": {"errors"},
    "ownership": {"errors"},
    "compiled": {"errors", "atomic", "cache", "ownership", "text"},
    "spec": {"errors"},
    "records": {"errors", "spec", "training"},  # recipes are data
    "zoo": {"errors", "spec"},
    "nn": {"errors", "spec"},
    "analysis": {"errors", "spec", "nn"},
    "interop": {"atomic", "bounded", "errors", "nn", "records", "spec", "zoo"},
    "data": {"atomic", "bounded", "cache", "compiled", "errors", "ownership", "text"},
    "engine": {"cache", "compiled", "errors", "nn", "spec", "text"},
    "evaluate": {"atomic", "data", "engine", "errors", "interop", "nn", "runs", "spec", "text", "zoo"},
    "use": {
        "atomic",
        "bounded",
        "data",
        "engine",
        "errors",
        "evaluate",
        "interop",
        "nn",
        "paper",
        "records",
        "runs",
        "spec",
        "text",
        "zoo",
    },
    "runs": {"errors", "ownership", "records", "spec", "training"},
    "training": {
        "analysis",
        "errors",
        "atomic",
        "text",
        "spec",
        "zoo",
        "nn",
        "data",
        "engine",
        "evaluate",
        "interop",
        "runs",
        "paper",
        "report",
    },
    "paper": {"errors", "records", "spec"},
    "report": {"atomic", "errors", "ownership", "paper", "records", "runs", "spec", "text"},
    "reproduce": {
        "analysis",
        "errors",
        "text",
        "spec",
        "zoo",
        "data",
        "engine",
        "evaluate",
        "interop",
        "training",
        "runs",
        "paper",
        "report",
    },
    "describe": {
        "errors",
        "text",
        "spec",
        "zoo",
        "nn",
        "analysis",
        "engine",
        "interop",
        "atomic",
        "data",
        "evaluate",
        "report",
        "runs",
    },
}
FREE = {"__init__", "__main__", "cli"}  # the front doors see everything, and nobody sees them


def imports(path: Path) -> set[str]:
    """The rooms of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "resnets":
            parts = node.module.split(".")[1:]
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("resnets.")}
    return found - {"__version__"}


def test_rooms_import_in_one_direction():
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room in FREE:
            continue
        assert room in ALLOWED, f"{room} is a new room: say here what it may import"
        assert imports(path) <= ALLOWED[room] | {room}, path.relative_to(ROOT)


def test_importing_the_package_does_not_import_torch():
    code = "import sys, resnets; resnets.list_models(); print('torch' in sys.modules, 'rich' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]
