"""The trained networks inside the package: no network connection, no torch here.

`weights/index.json` has the sha256 of each file; `python -m tools.publish_weights RUN` adds to it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from resnets import records
from resnets.errors import UserError

FOLDER = Path(__file__).with_name("shipped")
DEFAULT = "preresnet20.cifar10"  # the default of `resnets predict`


def index() -> dict[str, str]:
    """The names, as `preresnet20.cifar10`, and the sha256 of their files."""
    path = FOLDER / "index.json"
    return records.INDEX.read(path) if path.exists() else {}


def of(network: str) -> list[str]:
    """The pretrained names of a network: `preresnet20.cifar10` for `preresnet20`."""
    return [name for name in index() if name.partition(".")[0] == network]


def file_of(name: str) -> Path:
    """The weights file of a name, checked against its hash."""
    known = index()
    if name not in known:
        shipped = f"ships {', '.join(known)}" if known else "ships no trained networks"
        raise UserError(f"there is no pretrained {name!r}: this version of the package {shipped}.")
    path = FOLDER / f"{name}.safetensors"
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; reinstall the package.") from None
    if found != known[name]:
        raise UserError(f"{path} is damaged: its sha256 is {found} and not {known[name]}; reinstall the package.")
    return path


def is_name(word: str) -> bool:
    """Whether a word has the form of a pretrained name, `NETWORK.DATA`, with data that some network is trained on."""
    return word.partition(".")[2] in {name.partition(".")[2] for name in index()}
