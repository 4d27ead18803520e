"""What all drawn figures share: how words become labels, and how the file is written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from resnets.atomic import write_atomically
from resnets.text import printable


def label(words: str) -> str:
    """Words as they are: matplotlib reads $ as mathematics, and leaves labels that begin with _ out of a legend."""
    shown = printable(words).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def save(figure: Any, path: Path, **options: Any) -> None:
    """The path's ending says the format. The same figure gives the same bytes; a link at the path is not followed."""
    import matplotlib

    format = path.suffix.removeprefix(".")
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "resnets", "svg.fonttype": "none"}):
        figure.savefig(file, format=format, metadata={"Date": None} if format == "svg" else None, **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, file.getvalue())
