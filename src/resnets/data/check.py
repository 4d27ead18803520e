"""Decode every image of a folder; count conversions and list bad images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch.utils.data import Dataset

from resnets.data.budget import room_for
from resnets.data.decode import BadImageError, Opened, read
from resnets.data.decode_workers import count_cores, decode_ahead
from resnets.data.files import Files
from resnets.data.folder import Folder
from resnets.progress import Progress

_AT_ONCE = 64  # files that a process decodes before it reports


@dataclass
class Found:
    """What was found in some files."""

    count: int = 0
    notes: Counter[str] = field(default_factory=Counter)  # greyscale, turned by EXIF ...
    bad: dict[str, str] = field(default_factory=dict)  # path: the end of a sentence that starts with it
    sides: Counter[int] = field(default_factory=Counter)  # the shorter ones

    def add(self, other: Found) -> None:
        self.count += other.count
        self.notes += other.notes
        self.bad |= other.bad
        self.sides += other.sides


class Decoding(Dataset[Found]):
    """Decodes whole files."""

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
    """Decode every image of each part of a folder."""
    found = {}
    for part, files in parts(data).items():
        whole = found[part] = Found()
        workers = count_cores() if processes is None else processes
        with (
            progress.task(f"decoding {part}", len(files)) as advance,
            decode_ahead(Decoding(), _batches(files), workers) as stream,
        ):
            for some in stream:
                whole.add(some)
                advance(some.count)
    return found


def _batches(files: Files) -> Iterator[list[str]]:
    for start in range(0, len(files), _AT_ONCE):
        yield [files.path(i) for i in range(start, min(start + _AT_ONCE, len(files)))]
