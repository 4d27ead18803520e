"""What `resnets data check` does: every image of a folder is decoded, what is odd is counted, what is bad is named."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from torch.utils.data import Dataset

from resnets.data.bad_images import require_policy
from resnets.data.budget import room_for
from resnets.data.decode import BadImageError, Opened, read
from resnets.data.decode_workers import decode_ahead
from resnets.data.files import Files
from resnets.data.folder import Folder, open_folder
from resnets.data.progress import Console, Progress
from resnets.text import print_lines

_AT_ONCE = 64  # files that a process looks at before it tells
_NAMED = 20  # bad images


@dataclass
class Found:
    """What some files are."""

    count: int = 0
    notes: Counter[str] = field(default_factory=Counter)  # greyscale, turned by EXIF ...
    bad: dict[str, str] = field(default_factory=dict)  # path: the end of a sentence that begins with it
    sides: Counter[int] = field(default_factory=Counter)  # the shorter ones

    def add(self, other: Found) -> None:
        self.count += other.count
        self.notes += other.notes
        self.bad |= other.bad
        self.sides += other.sides


class Looks(Dataset[Found]):
    """Decodes files, whole."""

    def __getitem__(self, paths: list[str]) -> Found:
        found = Found(len(paths))
        for path in paths:
            try:
                opened = Opened(read(path))
                with room_for(opened.size):
                    opened.pixels()
                found.notes.update(opened.notes)
                found.sides[min(opened.size)] += 1
            except BadImageError as bad:
                found.bad[path] = str(bad)
        return found


def parts(data: Folder) -> dict[str, Files]:
    return {"train": data.train, "val": data.test} if data.test else {"images": data.train}


def check(data: Folder, progress: Progress, processes: int | None = None) -> dict[str, Found]:
    """Every image of each part of a folder."""
    found = {}
    for part, files in parts(data).items():
        whole = found[part] = Found()
        workers = (os.cpu_count() or 1) if processes is None else processes
        with (
            progress.task(f"decoding {part}", len(files)) as advance,
            decode_ahead(Looks(), _batches(files), workers) as stream,
        ):
            for some in stream:
                whole.add(some)
                advance(some.count)
    return found


def check_command(path: str, bad_images: str = "error") -> int:
    """Print what is in a folder; 1 where an image is bad and the policy is `error`."""
    require_policy(bad_images)
    imagenet = path.startswith("imagenet:")
    data = open_folder(path.removeprefix("imagenet:"), imagenet)
    found = check(data, Console())
    for part, files in parts(data).items():
        some = found[part]
        each = np.bincount(files.labels, minlength=data.num_classes)
        print_lines(
            f"{part}: {some.count:,} images of {np.count_nonzero(each):,} classes, {each[each > 0].min():,} to "
            f"{each.max():,} a class; shorter sides {_range(some.sides)}"
        )
        for note, count in some.notes.most_common():
            print_lines(f"  {count:,} {note}")
        if some.bad:
            print_lines(f"  {len(some.bad):,} bad")
        for bad, fault in islice(some.bad.items(), _NAMED):
            print_lines(f"    {bad} {fault}")
        if len(some.bad) > _NAMED:
            print_lines(f"    and {len(some.bad) - _NAMED:,} more")
    print_lines(f"digest {data.digest}")
    return int(bad_images == "error" and any(some.bad for some in found.values()))


def _range(sides: Counter[int]) -> str:
    if not sides:
        return "unknown"
    middle = sorted(sides.elements())[sides.total() // 2]
    return f"{min(sides)} to {max(sides)} pixels, {middle} in the middle"


def _batches(files: Files) -> Iterator[list[str]]:
    for start in range(0, len(files), _AT_ONCE):
        yield [files.path(i) for i in range(start, min(start + _AT_ONCE, len(files)))]
