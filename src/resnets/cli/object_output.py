"""What `resnets predict` prints and draws of a detector."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from PIL import Image

from resnets.cli import prediction_output
from resnets.cli.prediction_output import print_cells, write_cell
from resnets.data.annotations.drawing import require_picture_name, write_picture
from resnets.data.picture import open_picture
from resnets.errors import UserError
from resnets.evaluation.detection import DetectedObjects, DetectionPredictor
from resnets.progress import Console
from resnets.text import print_lines, printable, say


def detect_command(predictor: DetectionPredictor, files: Sequence[Path | Image.Image], args: argparse.Namespace) -> int:
    """Print the objects of each picture as they come; 1 where a picture could not be read."""
    if args.cam is not None:
        raise UserError("--cam is for classifiers; -o draws the boxes of a detector.")
    place = _find_places(args.out, files) if args.out is not None else None
    writer = WRITERS[args.form](None if sys.stdout.isatty() else sys.stdout)
    faults = []
    with Console().task("detecting", len(files)) as advance:
        for found in predictor.predict(files):
            faults += [found.fault] if found.fault else []
            writer.write(found)
            if place is not None and not found.fault:
                write_picture(found.draw(open_picture(Path(found.file))), place(Path(found.file)))
            advance(1)
    writer.close()
    if args.out is not None and len(faults) < len(files):
        say(f"the boxes are drawn in {args.out}")
    for fault in faults:
        say(fault)
    if faults:
        say(f"{len(faults)} of {len(files)} pictures could not be read.")
    return 1 if faults else 0


def _find_places(out: Path, files: Sequence[Path | Image.Image]) -> Callable[[Path], Path]:
    """Where each picture is drawn."""
    if len(files) == 1 and not out.is_dir():
        require_picture_name(out)
        return lambda file: out
    if out.exists() and not out.is_dir():
        raise UserError(f"-o must be a folder for {len(files)} pictures, and {out} is a file.")
    names = [Path(file).name for file in files if not isinstance(file, Image.Image)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two pictures are called {twice}, and would be drawn in one file: draw them separately.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {out}: {error.strerror}.") from None
    return lambda file: out / f"{file.stem}.png"


class Table:
    """One picture after another, a line for each object."""

    def __init__(self, out: IO[str] | None) -> None:
        self.out = out

    def write(self, found: DetectedObjects) -> None:
        if found.fault:
            return
        print_lines(f"{found.file}: {len(found.boxes)} objects", file=self.out)
        width = max((len(printable(name)) for name in found.classes), default=0)
        for name, score, box in zip(found.classes, found.scores, found.boxes, strict=True):
            corners = " ".join(f"{value:6.0f}" for value in box)
            print_lines(f"  {printable(name):<{width}}  {100 * score:5.1f} %  {corners}", file=self.out)

    def close(self) -> None:
        pass


class Json(prediction_output.Json):
    def write(self, found: DetectedObjects) -> None:  # type: ignore[override]
        rows = zip(found.labels, found.classes, found.scores, found.boxes, strict=True)
        objects = [{"label": a, "name": b, "score": c, "box": list(d)} for a, b, c, d in rows]
        self.add(found.file, found.fault, objects=objects)


class Csv:
    """A line for each object; names are written as for classifiers."""

    def __init__(self, out: IO[str] | None) -> None:
        self.out = out
        print_cells("file", "rank", "label", "class", "score", "left", "top", "right", "bottom", file=out)

    def write(self, found: DetectedObjects) -> None:
        rows = zip(found.labels, found.classes, found.scores, found.boxes, strict=True)
        for rank, (label, name, score, box) in enumerate(rows, 1):
            cells = (write_cell(found.file), rank, label, write_cell(name), f"{score:.6f}")
            print_cells(*cells, *(f"{value:.2f}" for value in box), file=self.out)

    def close(self) -> None:
        pass


WRITERS: dict[str, Callable[[IO[str] | None], Table | Json | Csv]] = {"table": Table, "json": Json, "csv": Csv}
