"""The sections of `make torture`: what is attacked, how often, and how long one attack may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resnets.errors import one_of


@dataclass(frozen=True)
class Section:
    """`where` names a class as MODULE:CLASS. An object of it is made once in a worker, from an empty folder; its
    `attack(draw, folder)` makes one attack from random numbers and returns how many things were tried, or None for 1.
    """

    where: str
    full: int  # things to try
    quick: int
    limit: float = 20.0  # seconds that one attack may take; more is a hang
    each: int = 1  # things that one attack tries, about


_FUZZ = {
    "pictures": Section("tools.torture.pictures:Pictures", 5000, 700),
    "weights": Section("tools.torture.weights:Weights", 5000, 700),
    "packages": Section("tools.torture.weights:Packages", 1500, 200),
    "runs": Section("tools.torture.runs:Runs", 3000, 400),
    "results": Section("tools.torture.results:Results", 1500, 150),
    "archives": Section("tools.torture.archives:Archives", 1500, 250),
    "commands": Section("tools.torture.commands:Commands", 2000, 250),
    "injections": Section("tools.torture.injections:Injections", 1000, 150),
    "pickles": Section("tools.torture.pickles:Pickles", 500, 100),
}
SECTIONS = {
    "kills": Section("tools.torture.kills:Kills", 200, 30, limit=300, each=6),
    "file-kills": Section("tools.torture.kills:FileKills", 120, 24, limit=300, each=3),
    **_FUZZ,
    "edits": Section("tools.torture.edits:Edits", 600, 80, limit=60),
    "bombs": Section("tools.torture.bombs:Bombs", 100, 40),
    "together": Section("tools.torture.together:Together", 15, 5, limit=600),
}
GROUPS = {"fuzz": tuple(_FUZZ)}


def chosen(names: Sequence[str]) -> dict[str, Section]:
    """The sections of some names, of which `fuzz` stands for all that read broken input; all without names."""
    found = {}
    for name in names or SECTIONS:
        for one in GROUPS.get(name, (name,)):
            if one not in SECTIONS:
                raise one_of("section", one, [*SECTIONS, *GROUPS])
            found[one] = SECTIONS[one]
    return found
