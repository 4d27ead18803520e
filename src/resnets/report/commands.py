"""What `resnets runs`, `plot`, `results` and `report` do."""

from __future__ import annotations

from pathlib import Path

from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.report import curves, listing, results
from resnets.runs import Run, find
from resnets.text import clock, print_json, print_lines, print_table


def runs_command(folder: str, *, as_json: bool) -> None:
    rows = listing.rows(find(Path(folder)))
    if as_json:
        print_json(rows)
        return
    if not rows:
        raise UserError(f"there is no run in {folder}.")
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


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def plot_command(paths: list[str], out: str) -> None:
    print_lines(curves.draw(_runs(paths), Path(out)))


def results_command(paths: list[str], out: str) -> None:
    results.write(Path(out), results.collect(_runs(paths)))
    print_lines(out)


def report_command(paths: list[str], out: str) -> None:
    from resnets.report.page.gathered import gather
    from resnets.report.page.whole import page

    gathered = gather([Path(path) for path in paths])
    text = page(gathered)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(out), text.encode())
    counts = [f"{len(gathered.found[budget])} rows at budget {budget}" for budget in gathered.budgets]
    counts += [f"{len(gathered.analyses)} analyses", f"{len(gathered.trainings)} other trainings"]
    others = f"; {gathered.left_out} files of other kinds left out" if gathered.left_out else ""
    print_lines(f"{out}: {', '.join(counts)}{others}")


def _runs(paths: list[str]) -> list[Run]:
    found = [run for path in paths for run in find(Path(path))]
    if not found:
        raise UserError(f"there is no run in {', '.join(paths)}.")
    return found
