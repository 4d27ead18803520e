"""What all pictures by matplotlib share: names that it takes as they are, and files that are whole or not there."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.text import printable

_LONGEST = 100  # characters of a name, or the legend takes the place of the curves
_WITHOUT_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def label(name: str) -> str:
    """A name as matplotlib shows it: it would read formulas between dollars, and leave out what begins with _."""
    words = printable(name)
    words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."
    return (" " if words.startswith("_") else "") + words.replace("$", r"\$")


def save(figure: Any, path: Path, **options: Any) -> Path:
    """Draw to a file, whose ending says the format: the same bytes for the same figure."""
    import matplotlib

    data = io.BytesIO()
    options["metadata"] = _WITHOUT_DATE.get(path.suffix)
    with matplotlib.rc_context({"svg.hashsalt": "resnets", "svg.fonttype": "none"}):
        figure.savefig(data, format=path.suffix.lstrip("."), **options)
    make_folder_of(path)
    write_atomically(path, data.getvalue())
    return path
