"""What `resnets predict` does: pictures in, classes out, a few pictures in memory at a time."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from resnets.atomic import write_atomically
from resnets.data import Console
from resnets.data.picture import look_at_file, pictures_below
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.inference import chosen
from resnets.errors import UserError
from resnets.evaluate.commands import member
from resnets.evaluate.labelled import ahead, size_of_views
from resnets.evaluate.members import Member, Seen, batches, probabilities
from resnets.evaluate.protocol import Protocol
from resnets.evaluate.subject import Subject, subject
from resnets.evaluate.views import Crop
from resnets.interop.pretrained import DEFAULT, file_of, index, located
from resnets.text import say
from resnets.use.telling import TELLERS, Answer


def predict_command(
    paths: Sequence[str],
    *,
    weights: str | None = None,
    top: int = 5,
    form: str = "table",
    cam: str | None = None,
    protocol: Protocol | None = None,
    device: str = "auto",
    engine: str = "auto",
) -> int:
    """The exit code: 1 where a picture could not be read."""
    keep_freed_memory()
    place = choose(device)
    if cam is not None and not cam.lower().endswith((".png", ".jpg", ".jpeg")):
        raise UserError(f"--cam writes .png or .jpg, not {cam}.")
    given = subject(located(weights) if weights else _default())
    files = list(found(paths))
    asked = protocol or Protocol()
    if cam is not None:
        _require_one(files, asked)
    seer = member(given, asked, chosen(engine, place), place)
    # A bar on the terminal takes over what is printed there; what goes to a file goes there all the same.
    out = None if sys.stdout.isatty() else sys.stdout
    teller = TELLERS[form](given.about, out)
    faults = []
    with Console().task("recognising", len(files)) as advance:
        for answer in answers(seer, files, top, asked.average, given.net.spec.in_channels):
            faults += [answer] if answer.fault else []
            teller.tell(answer)
            advance(1)
            if cam is not None and not answer.fault:
                _draw(Path(cam), given, seer, Path(answer.file), answer.labels[0])
    teller.close()
    for answer in faults:
        say(answer.fault)
    if faults:
        say(f"{len(faults)} of {len(files)} pictures could not be read.")
    return 1 if faults else 0


def _default() -> Path:
    if DEFAULT not in index():
        raise UserError("name the network to use: --weights FILE, a run's folder or a file of weights.")
    return file_of(DEFAULT)


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


def _require_one(files: Sequence[Path], protocol: Protocol) -> None:
    if len(files) != 1:
        raise UserError(f"--cam draws over one picture, and {len(files)} were given.")
    if protocol.ten_crop or protocol.multi_scale:
        raise UserError("--cam shows the map of one crop; leave out --ten-crop and --multi-scale.")


def _draw(out: Path, given: Subject, seer: Member, path: Path, label: int) -> None:
    from resnets.use.cam import activation_map, overlay, scaled_for

    crop = seer.views
    assert isinstance(crop, Crop)  # others were refused

    def see(picture: Image.Image) -> tuple[Image.Image, Seen]:
        return scaled_for(picture, crop), Seen(picture, [crop])

    picture, seen = look_at_file(path, given.net.spec.in_channels, see)
    x = seer.normalize(seen.views[crop][0][None].to(seer.device))
    evidence = activation_map(given.net.to(seer.device), x, label)[0].cpu()
    data = io.BytesIO()
    overlay(picture, crop, evidence).save(data, "PNG" if out.suffix.lower() == ".png" else "JPEG")
    write_atomically(out, data.getvalue())
    say(f"the evidence for {given.about.name(label)} is drawn in {out}")
