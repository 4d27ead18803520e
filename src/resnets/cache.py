"""Where things are kept that can be had again: data sets, compiled kernels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from resnets.errors import UserError


def cache_dir() -> Path:
    """`$RESNETS_CACHE`, or `resnets` in the platform's folder for caches."""
    if given := os.environ.get("RESNETS_CACHE"):
        return Path(given).expanduser()
    try:
        home = Path.home()
    except RuntimeError:
        raise UserError("there is no home folder to keep a cache in; set RESNETS_CACHE to a folder.") from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "resnets"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "resnets"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "resnets"
