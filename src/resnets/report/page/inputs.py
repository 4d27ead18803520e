"""Read what a page is made from: results of rows, analyses, signals of units, other trainings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resnets import records
from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.papers.rows import Experiment


@dataclass
class Inputs:
    found: dict[str, Outcomes] = field(default_factory=dict)  # by budget and row
    files: dict[tuple[str, str], Path] = field(default_factory=dict)  # of the same
    analyses: dict[Path, dict[str, Any]] = field(default_factory=dict)  # as `resnets analyze` writes them
    signals: dict[tuple[int, str], dict[str, Any]] = field(
        default_factory=dict
    )  # of new weights, by layers and kernels
    trained: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # of trained rows, by budget and row
    trainings: dict[Path, list[dict[str, Any]]] = field(default_factory=dict)  # as `resnets results` writes them
    left_out: int = 0  # files in folders that are of other kinds

    @property
    def budgets(self) -> list[str]:
        """In the order of columns: the most thorough first, unknown ones last."""
        known = list(BUDGETS)
        return sorted(self.found, key=lambda name: (known.index(name) if name in BUDGETS else len(known), name))

    def rank_budgets(self, experiment: Experiment) -> list[str]:
        """The budgets that have rows of an experiment, the one to show first: the most thorough of those with at least
        half as many rows as any other."""
        counts = {budget: sum(row.name in self.found[budget] for row in experiment.rows) for budget in self.budgets}
        known = [budget for budget, count in counts.items() if count]
        best = next((budget for budget in known if 2 * counts[budget] >= max(counts.values())), None)
        return sorted(known, key=lambda budget: budget != best)

    def find_best(self, row: str) -> Outcome | None:
        """The result of a row at the most thorough budget."""
        return next((self.found[budget][row] for budget in self.budgets if row in self.found[budget]), None)


def read_inputs(paths: Sequence[Path], leave_out: Callable[[UserError], None] | None = None) -> Inputs:
    """Read files, and all files below folders. A file in a folder that cannot be read raises `UserError`, or is given
    to `leave_out`."""
    inputs = Inputs()
    for path, named in _find_files(paths):
        try:
            known = _add_file(inputs, path, records.load(path))
        except UserError as error:
            if named or leave_out is None:
                raise
            leave_out(error)
            continue
        if named and not known:
            raise UserError(f"{path} is no result of `resnets reproduce`, `analyze` or `results`; leave it out.")
        inputs.left_out += not known
    if not (inputs.found or inputs.analyses or inputs.signals or inputs.trained or inputs.trainings):
        raise UserError(f"there is no result in {', '.join(map(str, paths))}; `resnets reproduce table1` makes some.")
    return inputs


def _find_files(paths: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Each file once, and whether it was named itself."""
    seen = set()
    for path in paths:
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist; name files and folders of results.")
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            measured = "bench" in file.relative_to(path).parts  # benchmarks, not results of the papers
            real = os.path.realpath(file)  # does not fail on links to themselves
            if real not in seen and not measured:
                seen.add(real)
                yield file, file == path


def _add_file(inputs: Inputs, path: Path, data: Any) -> bool:
    """Add what a file holds to the inputs; False if it is of another kind. Refuses broken files."""
    if not isinstance(data, dict):
        return False
    if "row" in data and "signals" not in data:
        one = Outcome.from_dict(records.ROW.check(data, path))
        key = one.budget, one.row
        if key in inputs.files:
            raise UserError(f"{path} and {inputs.files[key]} are of the same row and budget; leave one of them out.")
        inputs.files[key] = path
        inputs.found.setdefault(one.budget, Outcomes())[one.row] = one
    elif "analyses" in data:
        inputs.analyses[path] = records.ANALYSES.check(data, path)
    elif "signals" in data:
        _add_signals(inputs, path, records.SIGNALS.check(data, path))
    elif ("recipe" in data and "runs" in data) or "groups" in data:
        inputs.trainings[path] = records.check_trainings(data, path)
    else:
        return False
    return True


def _add_signals(inputs: Inputs, path: Path, data: dict[str, Any]) -> None:
    """Signals of trained rows say which row and budget; those of new weights say neither."""
    data = {**data, "path": str(path)}
    if "row" in data and "budget" in data:
        _add_once(inputs.trained, (data["budget"], data["row"]), data)
    else:
        _add_once(inputs.signals, (data["layers"], data["kernels"]), data)


def _add_once(found: dict[Any, dict[str, Any]], key: Any, data: dict[str, Any]) -> None:
    if key in found:
        raise UserError(f"{data['path']} and {found[key]['path']} hold the same signals; leave one of them out.")
    found[key] = data
