"""What `resnets predict` does."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from resnets.atomic import write_atomically
from resnets.cli.prediction_output import WRITERS
from resnets.data import Console
from resnets.data.picture import look_at_file
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.inference import chosen
from resnets.errors import UserError
from resnets.data.test_crops import Crop
from resnets.evaluation.ensemble import Member, Seen
from resnets.evaluation.evaluator import member
from resnets.evaluation.predictions import answers, found
from resnets.evaluation.protocol import Protocol
from resnets.text import say
from resnets.weights.loaded_model import LoadedModel, subject
from resnets.weights.pretrained import DEFAULT, file_of, find_weights, index


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
    given = subject(find_weights(weights) if weights else _default())
    files = list(found(paths))
    asked = protocol or Protocol()
    if cam is not None:
        _require_one(files, asked)
    seer = member(given, asked, chosen(engine, place), place)
    # A bar on the terminal takes over what is printed there; what goes to a file goes there all the same.
    out = None if sys.stdout.isatty() else sys.stdout
    teller = WRITERS[form](given.about, out)
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


def _require_one(files: Sequence[Path], protocol: Protocol) -> None:
    if len(files) != 1:
        raise UserError(f"--cam draws over one picture, and {len(files)} were given.")
    if protocol.ten_crop or protocol.multi_scale:
        raise UserError("--cam shows the map of one crop; leave out --ten-crop and --multi-scale.")


def _draw(out: Path, given: LoadedModel, seer: Member, path: Path, label: int) -> None:
    from resnets.evaluation.activation_map import activation_map, overlay, scaled_for

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
