"""How a detector looks at pictures in testing, as options. No torch here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from resnets.errors import UserError, shown
from resnets.options import Options, fields_of, option

METRICS = {
    "voc2007": "the mean precision at 11 recalls, overlap 0.5",
    "voc2012": "the area under precision, overlap 0.5",
    "coco": "the mean over overlaps 0.5 to 0.95, and eleven other numbers",
}
_LARGEST = 4096  # pixels of a shorter side


def parse_sides(text: str) -> tuple[int, ...]:
    """`600`, or `200,400,600,800,1000`."""
    if not re.fullmatch(r"[0-9]{2,5}(,[0-9]{2,5}){0,15}", text):
        raise UserError(f"sides are written as 600 or 400,600,800, not {shown(text)}.")
    return tuple(map(int, text.split(",")))


@dataclass(frozen=True)
class DetectOptions(Options):
    """v1's improvements and the thresholds of a test; for detectors only."""

    sides: tuple[int, ...] = option(
        (),
        "shorter sides at which a picture is seen (the detector's own); of several, features of two are merged by "
        "maxout: 200,400,600,800,1000",
        group="detectors",
        parse=parse_sides,
        metavar="N,N",
    )
    refine: bool = option(False, "pool again from each box, join both sets, and let boxes vote", group="detectors")
    nms: float = option(
        0.3, "overlap above which the worse of two boxes of a class is dropped", group="detectors", least=0, most=1
    )
    proposals: int = option(300, "proposals of a picture", group="detectors", least=1, most=10_000)
    most_boxes: int = option(100, "detections of a picture", group="detectors", least=1, most=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(side, int) and 16 <= side <= _LARGEST for side in self.sides):
            raise UserError(f"sides must be whole numbers from 16 to {_LARGEST:,}, not {shown(self.sides)}.")

    def refuse_for_classifiers(self) -> None:
        """Raise if one of these options was given, for a network that is no detector."""
        for name, field in fields_of(DetectOptions).items():
            if getattr(self, name) != field.default:
                raise UserError(f"--{name.replace('_', '-')} is for detectors, and this is a classifier.")
