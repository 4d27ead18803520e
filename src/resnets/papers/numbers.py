"""Test errors that the papers report for the named networks, in per cent."""

from __future__ import annotations

from dataclasses import dataclass

from resnets.papers.tables import EXPERIMENTS
from resnets.spec import Spec
from resnets.unit_spec import Identity


@dataclass(frozen=True)
class Reported:
    network: str
    data: str
    error: float
    where: str  # which paper, which table


def _read_tables() -> dict[tuple[str, str], Reported]:
    """From the tables, the first of which that has a network counts."""
    found: dict[tuple[str, str], Reported] = {}
    for experiment in (EXPERIMENTS[name] for name in ("table1", "table3", "plain-cifar")):
        for cell in experiment.cells:
            if cell.row is not None and not cell.row.changes and cell.value.error is not None:
                network, data = cell.row.network, cell.row.data
                row = Reported(network, data, cell.value.error, experiment.where.partition(",")[0])
                found.setdefault((network, data), row)
    return found


REPORTED = _read_tables()


def reported(name: str, data: str) -> Reported | None:
    """The papers' error for a network, or for its original twin where they have none for the pre-activation one."""
    return REPORTED.get((name, data)) or REPORTED.get((name.removeprefix("pre"), data))


def beside(spec: Spec, data: str) -> str | None:
    """A sentence to stand beside our own number; None where the papers have nothing to compare with."""
    row = reported(spec.name, data)
    if row is None or not isinstance(spec.shortcut, Identity):
        return None
    if spec.order != ("full_preact" if spec.name.startswith("pre") else "original"):
        return None
    return f"the paper's {row.network}, after 64,000 iterations: {row.error:.2f} % ({row.where})"
