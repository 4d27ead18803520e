"""The cache folder, for data sets and compiled kernels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from resnets.errors import UserError


def cache_dir() -> Path:
    """`$RESNETS_CACHE`, which several users may share, or the folder at home."""
    if given := os.environ.get("RESNETS_CACHE"):
        return Path(given).expanduser()
    return home_cache_dir()


def home_cache_dir() -> Path:
    """`resnets` in the platform's cache folder."""
    try:
        home = Path.home()
    except RuntimeError:
        raise UserError("there is no home folder for a cache; set RESNETS_CACHE to a folder.") from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "resnets"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "resnets"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "resnets"


def make_folder(folder: Path) -> None:
    """Create a folder of the cache and its parents, which only we can write, whatever the umask is."""
    for place in [place for place in (folder, *folder.parents) if not place.exists()][::-1]:
        place.mkdir(0o755, exist_ok=True)
