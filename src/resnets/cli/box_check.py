"""What `resnets data check` prints of pictures with boxes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from resnets.data.annotations import open_annotated
from resnets.data.annotations.check import Checked, check_pictures, draw_sheet
from resnets.data.annotations.drawing import require_picture_name, write_picture
from resnets.progress import Console
from resnets.text import print_lines, print_table

_NAMED = 20


def check_command(word: str, sheet: Path | None, bad_images: str) -> int:
    """1 where a picture or a box is bad and the policy is `error`."""
    if sheet is not None:
        require_picture_name(sheet)
    data = open_annotated(word, bad_boxes="skip")
    found = check_pictures(data, Console())
    for part, one in found.items():
        print_lines(
            f"{part}: {one.pictures:,} pictures, {one.empty:,} without objects; {one.objects.total():,} objects of "
            f"{len(one.objects)} classes, {one.difficult:,} difficult, {one.crowd:,} crowds; boxes {_describe(one)}"
        )
        for note, count in one.notes.most_common():
            print_lines(f"  {count:,} {note}")
        _print_some("pictures", (f"{path} {fault}" for path, fault in one.bad.items()), len(one.bad))
    rows = [(name, *(f"{one.objects[i]:,}" for one in found.values())) for i, name in enumerate(data.classes)]
    print_table(("class", *found), rows, right=tuple(found))
    _print_some("boxes", map(str, data.faults), len(data.faults))
    print_lines(f"digest {data.digest}")
    if sheet is not None:
        write_picture(draw_sheet(data.train, data.classes), sheet)
        print_lines(f"sheet  {sheet}")
    bad = bool(data.faults) or any(one.bad for one in found.values())
    return int(bad and bad_images == "error")


def _describe(one: Checked) -> str:
    if not one.sides:
        return "none"
    low, middle, high = np.percentile(one.sides, (5, 50, 95))
    return f"of {low:.0f} to {high:.0f} pixels (root of the area, 5 to 95 %), {middle:.0f} in the middle"


def _print_some(what: str, sentences: Iterable[str], count: int) -> None:
    if count:
        print_lines(f"  {count:,} bad {what}", *(f"    {sentence}" for sentence in islice(sentences, _NAMED)))
    if count > _NAMED:
        print_lines(f"    and {count - _NAMED:,} more")
