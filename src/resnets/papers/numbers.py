"""Test errors that the papers report for the named networks, in per cent."""

from __future__ import annotations

from dataclasses import dataclass

from resnets.spec import Spec
from resnets.unit_spec import Identity


@dataclass(frozen=True)
class Reported:
    network: str
    data: str
    error: float
    where: str  # which paper, which table


REPORTED = (
    Reported("resnet20", "cifar10", 8.75, "v1 Table 6"),
    Reported("resnet32", "cifar10", 7.51, "v1 Table 6"),
    Reported("resnet44", "cifar10", 7.17, "v1 Table 6"),
    Reported("resnet56", "cifar10", 6.97, "v1 Table 6"),
    Reported("resnet110", "cifar10", 6.61, "v2 Table 1"),
    Reported("resnet1202", "cifar10", 7.93, "v1 Table 6"),
    Reported("resnet110_1layer", "cifar10", 9.90, "v2 Table 3"),
    Reported("resnet164", "cifar10", 5.93, "v2 Table 3"),
    Reported("resnet1001", "cifar10", 7.61, "v2 Table 3"),
    Reported("preresnet110_1layer", "cifar10", 8.91, "v2 Table 3"),
    Reported("preresnet110", "cifar10", 6.37, "v2 Table 3"),
    Reported("preresnet164", "cifar10", 5.46, "v2 Table 3"),
    Reported("preresnet1001", "cifar10", 4.92, "v2 Table 3"),
    Reported("resnet164", "cifar100", 25.16, "v2 Table 3"),
    Reported("resnet1001", "cifar100", 27.82, "v2 Table 3"),
    Reported("preresnet164", "cifar100", 24.33, "v2 Table 3"),
    Reported("preresnet1001", "cifar100", 22.71, "v2 Table 3"),
)


def reported(name: str, data: str) -> Reported | None:
    """The papers' error for a network, or for its original twin where they have none for the pre-activation one."""
    rows = {(row.network, row.data): row for row in REPORTED}
    return rows.get((name, data)) or rows.get((name.removeprefix("pre"), data))


def beside(spec: Spec, data: str) -> str | None:
    """A sentence to stand beside our own number; None where the papers have nothing to compare with."""
    row = reported(spec.name, data)
    if row is None or not isinstance(spec.shortcut, Identity):
        return None
    if spec.order != ("full_preact" if spec.name.startswith("pre") else "original"):
        return None
    return f"the paper's {row.network}, after 64,000 iterations: {row.error:.2f} % ({row.where})"
