"""What `resnets runs`, `plot`, `results` and `report` do."""

from __future__ import annotations

from pathlib import Path

from resnets.atomic import make_folder_of, write_atomically
from resnets.errors import UserError
from resnets.experiments import collect as results
from resnets.report import curves, listing
from resnets.report.left_out import LeftOut
from resnets.runs import Run, find
from resnets.text import clock, print_json, print_lines, print_table


def runs_command(folder: str, *, as_json: bool) -> int:
    rows, left_out = [], LeftOut()
    for run in find(Path(folder)):
        with left_out.unless_readable():
            rows.append(listing.row(run))
    if as_json:
        print_json(rows)
        return left_out.code
    if not rows:
        raise UserError(f"there is no run in {folder}{' that can be read' * left_out.code}.")
    cells = [
        [
            row["run"],
            row["state"],
            f"{row['step']:,}/{row['steps']:,}",
            _number(row["loss"], 3),
            _number(row["validation"], 2),
            _number(row["test"], 2),
            clock(row["seconds_left"]) if row["seconds_left"] is not None else "",
        ]
        for row in rows
    ]
    header = ("run", "state", "steps", "loss", "validation error", "test error", "time left")
    print_table(header, cells, right=header[2:])
    return left_out.code


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def plot_command(paths: list[str], out: str) -> int:
    runs, drawn, left_out = _runs(paths), [], LeftOut()
    if len(runs) == 1:
        curves.require_drawable(runs[0])
    for run in runs:
        with left_out.unless_readable():
            curves.require_drawable(run)
            drawn.append(run)
    if not drawn:
        raise UserError(f"no run in {', '.join(paths)} can be drawn.")
    print_lines(curves.draw(drawn, Path(out)))
    return left_out.code


def results_command(paths: list[str], out: str) -> None:
    results.write(Path(out), results.collect(_runs(paths)))
    print_lines(out)


def report_command(paths: list[str], out: str) -> int:
    from resnets.report.page.inputs import gather
    from resnets.report.page.page import page

    left_out = LeftOut()
    gathered = gather([Path(path) for path in paths], left_out.tell)
    text = page(gathered)
    make_folder_of(Path(out))
    write_atomically(Path(out), text.encode("utf-8", "backslashreplace"))  # names of files may be no UTF-8
    counts = [f"{len(gathered.found[budget])} rows at budget {budget}" for budget in gathered.budgets]
    counts += [f"{len(gathered.analyses)} analyses", f"{len(gathered.trainings)} other trainings"]
    others = f"; {gathered.left_out} files of other kinds left out" if gathered.left_out else ""
    print_lines(f"{out}: {', '.join(counts)}{others}")
    return left_out.code


def _runs(paths: list[str]) -> list[Run]:
    found = [run for path in paths for run in find(Path(path))]
    if not found:
        raise UserError(f"there is no run in {', '.join(paths)}.")
    return found
