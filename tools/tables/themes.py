"""Pictures for light and dark pages: two files, and the markup that chooses between them."""

from __future__ import annotations

from typing import Any

_TEXT = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
COLOURS: dict[str, dict[Any, Any]] = {  # the ending of a file's name, and matplotlib's settings for it
    "": dict.fromkeys(_TEXT, "#1b1b1b"),
    "-dark": dict.fromkeys(_TEXT, "#e6e6e6"),
}


def write_picture(path: str, text: str) -> str:
    """Show `path.svg`, on dark pages `path-dark.svg`; `text` describes it."""
    return f"""\
<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{path}-dark.svg">
  <img src="{path}.svg" alt="{text}">
</picture>"""
