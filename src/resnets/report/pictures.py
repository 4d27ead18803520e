"""What all pictures by matplotlib share: figures, labels without its markup, and files that are written whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.errors import UserError
from resnets.text import printable

_LONGEST = 100  # characters of a name, or the legend covers the curves
_WITHOUT_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def require_matplotlib(what: str) -> Any:
    """matplotlib; call it before a long measurement, not after it. `what` names the picture in the error."""
    try:
        import matplotlib
    except ImportError:
        raise UserError(f"drawing {what} needs the extra: pip install 'resnets[plot]'.") from None
    return matplotlib


def new_figure(what: str, size: tuple[float, float]) -> Any:
    require_matplotlib(what)
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def label(name: str) -> str:
    """Escape a name for matplotlib, which reads formulas between dollars and hides labels that begin with _."""
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
