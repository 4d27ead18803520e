"""Test errors that the papers report for the named networks, in per cent."""

from __future__ import annotations

from dataclasses import dataclass

from resnets.chain import Chain, NetworkSpec
from resnets.papers.tables import EXPERIMENTS
from resnets.unit_spec import Identity


@dataclass(frozen=True)
class Reported:
    network: str
    data: str
    error: float
    where: str  # which paper, which table


def _read_tables() -> dict[tuple[str, str], Reported]:
    """From the tables; the first that has a network counts."""
    found: dict[tuple[str, str], Reported] = {}
    for experiment in (EXPERIMENTS[name] for name in ("table1", "table3", "plain-cifar")):
        for cell in experiment.cells:
            if cell.row is not None and not cell.row.changes and cell.value.error is not None:
                network, data = cell.row.network, cell.row.data
                row = Reported(network, data, cell.value.error, experiment.where.partition(",")[0])
                found.setdefault((network, data), row)
    return found


REPORTED = _read_tables()


def find_paper_error(name: str, data: str) -> Reported | None:
    """The papers' error for a network; without one for a pre-activation net, that of the original net."""
    return REPORTED.get((name, data)) or REPORTED.get((name.removeprefix("pre"), data))


def list_reports(network: str) -> list[str]:
    """Sentences: what the papers' tables say about another system."""
    return [
        f"{experiment.where}, {cell.full_label}: {cell.value} %"
        for experiment in EXPERIMENTS.values()
        for cell in experiment.cells
        if cell.row is not None and cell.row.network == network and str(cell.value)
    ]


def quote_paper(spec: NetworkSpec, data: str) -> str | None:
    """The papers' error as a sentence; None where they have nothing to compare with."""
    if isinstance(spec, Chain):
        return _quote_other(spec.name, data)
    row = find_paper_error(spec.name, data)
    if row is None or not isinstance(spec.shortcut, Identity):
        return None
    if spec.order != ("full_preact" if spec.name.startswith("pre") else "original"):
        return None
    return f"the paper's {row.network}, after 64,000 iterations: {row.error:.2f} % ({row.where})"


def _quote_other(network: str, data: str) -> str | None:
    """What v2's Table 4 or v1's Table 6 quote for another system."""
    for experiment in (EXPERIMENTS["table4"], EXPERIMENTS["other-cifar"]):
        for cell in experiment.cells:
            if cell.row is not None and (cell.row.network, cell.row.data) == (network, data) and cell.value.error:
                return f"the papers' {cell.label}: {cell.value} % ({experiment.where.partition(',')[0]})"
    return None
