"""What `resnets runs`, `plot`, `compare`, `results` and `report` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from resnets.cli.left_out import LeftOut
from resnets.errors import UserError
from resnets.experiments.results import collect_runs, write_results
from resnets.report import curves
from resnets.report.compare import RunComparison, compare_runs
from resnets.report.listing import RunSummary, list_runs
from resnets.runs import Run, find
from resnets.text import clock, print_json, print_lines, print_table


def runs_command(folder: str, *, as_json: bool) -> int:
    left_out = LeftOut()
    runs = list_runs(folder, left_out.add)
    if as_json:
        print_json([run.to_dict() for run in runs])
        return left_out.code
    if not runs:
        raise UserError(f"there is no run in {folder}{' that can be read' * left_out.code}.")
    header = ("run", *runs[0].differs, "state", "steps", "loss", "error on", "last", "best", "time left")
    cells = [[run.run, *run.differs.values(), *_describe_progress(run)] for run in runs]
    print_table(header, cells, right=("steps", "loss", "last", "best", "time left"))
    return left_out.code


def _describe_progress(run: RunSummary) -> list[str]:
    return [
        run.state,
        f"{run.step:,}/{run.steps:,}",
        _write_number(run.loss, 3),
        run.error_on or "",
        _write_number(run.last_error, 2),
        _write_number(run.best_error, 2),
        "" if run.seconds_left is None else clock(run.seconds_left),
    ]


def _write_number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def plot_command(paths: list[str], out: str) -> int:
    runs, drawn, left_out = _find_runs(paths), [], LeftOut()
    if len(runs) == 1:
        curves.require_drawable(runs[0])
    for run in runs:
        with left_out.skip_unreadable():
            curves.require_drawable(run)
            drawn.append(run)
    if not drawn:
        raise UserError(f"no run in {', '.join(paths)} can be drawn.")
    print_lines(curves.draw(drawn, Path(out)))
    return left_out.code


def compare_command(paths: list[str], out: str | None, *, as_json: bool) -> None:
    runs = _find_runs(paths)
    comparison = compare_runs(runs)
    if as_json:
        print_json(comparison.to_dict())
    else:
        _print_comparison(comparison)
    if out is not None:
        picture = curves.draw([Run(run.path) for run in comparison.runs], Path(out))
        if not as_json:
            print_lines("", f"curves: {picture}")


def _print_comparison(comparison: RunComparison) -> None:
    """Configuration, then outcome, with a column for each run."""
    runs = comparison.runs
    rows = comparison.fields or {"configuration": ("the same",) * len(runs)}
    outcome: dict[str, Sequence[str]] = {
        "state": [run.state for run in runs],
        "steps": [f"{run.step:,}/{run.steps:,}" for run in runs],
        "training loss": [_write_number(run.loss, 3) for run in runs],
        "error on": [run.error_on or "" for run in runs],
        "last error, %": [_write_number(run.last_error, 2) for run in runs],
        "best error, %": [_write_number(run.best_error, 2) for run in runs],
        "95 % interval": [f"{run.interval[0]:.2f} to {run.interval[1]:.2f}" if run.interval else "" for run in runs],
        "images a second": [_write_number(run.images_per_second, 0) for run in runs],
        "peak memory, MiB": [_write_number(run.memory, 0) for run in runs],
    }
    letters = [_name_column(i) for i in range(len(runs))]
    for letter, label, run in zip(letters, comparison.labels, runs, strict=True):
        print_lines(f"{letter}: {label} ({run.path})")
    print_lines()
    _print_columns("what differs", letters, rows)
    print_lines()
    _print_columns("outcome", letters, outcome)
    if comparison.differences:
        print_lines("", *comparison.differences)


def _name_column(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"run {i + 1}"


def _print_columns(title: str, header: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    print_table((title, *header), [[name, *values] for name, values in rows.items()])


def results_command(paths: list[str], out: str) -> None:
    print_lines(write_results(Path(out), collect_runs(_find_runs(paths))))


def report_command(paths: list[str], out: str) -> int:
    from resnets.report.page.page import write_report

    left_out = LeftOut()
    inputs = write_report([Path(path) for path in paths], Path(out), left_out.add)
    counts = [f"{len(inputs.found[budget])} rows at budget {budget}" for budget in inputs.budgets]
    counts += [f"{len(inputs.analyses)} analyses", f"{len(inputs.trainings)} other trainings"]
    others = f"; {inputs.left_out} files of other kinds left out" if inputs.left_out else ""
    print_lines(f"{out}: {', '.join(counts)}{others}")
    return left_out.code


def _find_runs(paths: list[str]) -> list[Run]:
    found = [run for path in paths for run in find(Path(path))]
    if not found:
        raise UserError(f"there is no run in {', '.join(paths)}.")
    return found
