"""The likeliest classes of pictures, a few pictures in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from resnets.data.picture import look_at_file, pictures_below
from resnets.errors import UserError
from resnets.evaluation.ensemble import Member, Seen, batches, probabilities
from resnets.evaluation.labelled_images import ahead, size_of_views


@dataclass(frozen=True)
class Answer:
    """The likeliest classes of a picture with their probabilities, or why it has none."""

    file: str
    labels: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    fault: str = ""


def found(paths: Sequence[str]) -> Iterator[Path]:
    """The files that were named, and those of folders that are named as pictures."""
    for path in map(Path, paths):
        if path.is_dir():
            files = list(pictures_below(path))
            if not files:
                raise UserError(f"{path} has no pictures in it.")
            yield from files
        else:
            yield path


def answers(seer: Member, files: Sequence[Path], top: int, average: str, channels: int = 3) -> Iterator[Answer]:
    """In the order of the files; pictures are decoded ahead, some at a time."""

    def look(path: Path) -> Seen | str:
        try:
            return look_at_file(path, channels, lambda picture: Seen(picture, [seer.views]))
        except UserError as error:
            return str(error)

    stream = zip(files, ahead(look, files, size_of_views), strict=True)
    for batch in batches(stream, lambda pair: size_of_views(pair[1])):
        pictures = [found for _, found in batch if isinstance(found, Seen)]
        ranked = iter(_ranked(seer, pictures, top, average)) if pictures else iter(())
        for path, found in batch:
            if isinstance(found, str):
                yield Answer(str(path), fault=found)
            else:
                labels, values = next(ranked)
                yield Answer(str(path), labels, values)


def _ranked(
    seer: Member, pictures: Sequence[Seen], top: int, average: str
) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    table = probabilities([seer], pictures, average)
    best = table.topk(min(top, table.shape[1]))
    for labels, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        yield tuple(labels), tuple(values)
