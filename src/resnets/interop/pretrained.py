"""The trained networks inside the package: no network connection, no torch here.

`weights/index.json` has the sha256 of each file; `python -m resnets.use.ship RUN` adds to it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from resnets.errors import UserError, one_of

FOLDER = Path(__file__).parents[1] / "weights"
DEFAULT = "preresnet20.cifar10"  # what `resnets predict` takes unless it is told otherwise


def index() -> dict[str, str]:
    """The names, as `preresnet20.cifar10`, and the sha256 of their files."""
    try:
        return json.loads((FOLDER / "index.json").read_text())
    except FileNotFoundError:
        return {}


def file_of(name: str) -> Path:
    """The weights file of a name, if it is what was shipped."""
    known = index()
    if not known:
        raise UserError(f"there is no pretrained {name!r}: this version of the package ships no trained networks.")
    if name not in known:
        raise one_of("pretrained network", name, known)
    path = FOLDER / f"{name}.safetensors"
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; install the package anew.") from None
    if found != known[name]:
        raise UserError(f"{path} is damaged: its sha256 is {found} and not {known[name]}; install the package anew.")
    return path


def located(word: str) -> Path:
    """A path as it is, unless nothing is there and the word names a pretrained network."""
    path = Path(word)
    return file_of(word) if not path.exists() and word in index() else path
