"""The shapes of the measurements that tables are made from: benchmarks, tests on ImageNet, transfer."""

from __future__ import annotations

from typing import Any

from resnets.errors import UserError
from resnets.records import (
    ABOVE_0,
    COUNT,
    NUMBER,
    PERCENT,
    POSITIVE,
    PROVENANCE,
    SCORE,
    TEXT,
    ListOf,
    Named,
    OrNull,
    Record,
    require_equal_lengths,
)

TEST = Record(  # as `resnets eval -o` writes it, of folders of pictures
    {"network": {"name": TEXT}, "data": TEXT, "views": TEXT, **SCORE, "images": POSITIVE, "top5": SCORE["top5?"]}
)
DETECTED = Record(  # as `resnets eval -o` writes it, of a detector
    {
        "network": {"name": TEXT},
        "data": TEXT,
        "views": TEXT,
        "metric": TEXT,
        "images": POSITIVE,
        "map": PERCENT,
        "interval": (PERCENT, PERCENT),
        "classes": ListOf({"name": TEXT, "objects": COUNT, "ap": OrNull(PERCENT)}, 1),
    }
)
TRANSFER = Record(  # as `benchmarks.transfer` writes it
    {
        "network": {"name": TEXT},
        "data": {"name": TEXT, "training_images": POSITIVE},
        "weights": {"name": TEXT},
        "steps": POSITIVE,
        "errors": Named(ListOf(PERCENT, 1)),
        "gains": Named({"mean": NUMBER, "bound_95": NUMBER}),
    }
)

_MEASUREMENTS = ("seconds", "peak", "foretold", "build", "first")
_LINE = {
    "contestants": Named({"reason?": TEXT, **{f"{key}?": ListOf(OrNull(ABOVE_0)) for key in _MEASUREMENTS}}),
    "rounds": POSITIVE,
    "multiply_adds?": {"fast": POSITIVE, "peak": POSITIVE},
    **{key: of for key, of in PROVENANCE.items() if key != "command"},
}


def _check_rounds(section: dict[str, Any]) -> None:
    """Contestants are compared round by round, so each must have taken part in all."""
    for name, line in section["lines"].items():
        if not line["contestants"]:
            raise UserError(f"lines.{name}.contestants must have at least one contestant.")
        for key in ("seconds", "peak"):
            there = {who: found[key] for who, found in line["contestants"].items() if found.get(key)}
            require_equal_lengths([(f"lines.{name}.contestants.{who}.{key}", each) for who, each in there.items()])


BENCH = Record({"lines": Named(_LINE)}, _check_rounds)
DEPTH = Record({"lines": Named({**_LINE, "layers": POSITIVE, "unit": TEXT, "order": TEXT})}, _check_rounds)
EPOCH = Record(  # as `benchmarks.epoch` writes it
    {
        "files": COUNT,
        "decoders": COUNT,
        "points": ListOf({"images": COUNT, "training": COUNT, "decoders": ListOf(COUNT)}, 2),
        "commit": OrNull(TEXT),
        "began": TEXT,
    }
)
