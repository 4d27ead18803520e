"""`python -m tools.notebooks [NAME ...]`: run the notebooks of examples/ again, and keep what they print and draw."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from resnets.atomic import write_atomically
from resnets.text import print_lines

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(path: Path) -> None:
    """Run a notebook in a kernel of its own and write it with its outputs, without the times of the cells."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False).execute()
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata.language_info = {"name": "python"}
    write_atomically(path, (nbformat.writes(notebook) + "\n").encode())


def main(names: Sequence[str]) -> int:
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # no warning of the debugger in the outputs
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if not names or path.stem in names:
            run(path)
            print_lines(f"{path.name}: run")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
