"""Everything that a page is made from, sorted by what it is: results of rows, analyses, other trainings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.paper.outcomes import METRICS, Outcome, outcome
from resnets.report.propagation import PANELS

BUDGETS = ("paper", "day", "hour", "smoke")  # the order of columns; others come after these


@dataclass
class Gathered:
    found: dict[str, dict[str, Outcome]] = field(default_factory=dict)  # by budget and row
    files: dict[tuple[str, str], Path] = field(default_factory=dict)  # of the same
    analyses: dict[Path, dict[str, Any]] = field(default_factory=dict)  # as `resnets analyze` writes them
    trainings: dict[Path, dict[str, Any]] = field(default_factory=dict)  # as `resnets results` writes them
    left_out: int = 0  # files in folders that are none of these

    @property
    def budgets(self) -> list[str]:
        return sorted(self.found, key=lambda name: (BUDGETS.index(name) if name in BUDGETS else len(BUDGETS), name))


def gather(paths: Sequence[Path]) -> Gathered:
    """From files and, with all that is below them, folders."""
    gathered = Gathered()
    for path, named in _files(paths):
        try:
            if not _sort(gathered, path, json.loads(path.read_text())):
                if named:
                    raise UserError(
                        f"{path} is no result of `resnets reproduce`, `analyze` or `results`; leave it out."
                    )
                gathered.left_out += 1
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise UserError(
                f"{path} cannot be read as a result ({type(error).__name__}: {error}); move it away or make it anew."
            ) from None
    if not (gathered.found or gathered.analyses or gathered.trainings):
        raise UserError(f"there is no result in {', '.join(map(str, paths))}; `resnets reproduce table1` makes some.")
    return gathered


def _files(paths: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Each file once, and whether it was named itself."""
    seen = set()
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist; name files and folders of results.")
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            measured = "bench" in file.relative_to(path).parts  # of speed and of budgets, not of the papers
            if file.resolve() not in seen and not measured:
                seen.add(file.resolve())
                yield file, file == path


def _sort(gathered: Gathered, path: Path, data: Any) -> bool:
    """Put what a file holds where it belongs; False if it belongs nowhere. What is broken raises here, not later."""
    if not isinstance(data, dict):
        return False
    if "row" in data:
        one = outcome(data)
        for test in one.tests:
            for metric in METRICS:
                one.by(test).values(metric)
        key = one.budget, one.row
        if key in gathered.files:
            raise UserError(f"{path} and {gathered.files[key]} are of the same row and budget; leave one of them out.")
        gathered.files[key] = path
        gathered.found.setdefault(one.budget, {})[one.row] = one
    elif "analyses" in data:
        for one_net in data["analyses"]:
            for panel in PANELS:
                _ = one_net["label"], one_net["spans"], one_net[panel.part][panel.name]
        gathered.analyses[path] = data
    elif "recipe" in data and "runs" in data:
        for run in data["runs"]:
            _ = run["result"]["test"]["error"]
        gathered.trainings[path] = data
    else:
        return False
    return True
