"""Describe another system: its rows, its cost, who published it, what the papers report and what is uncertain."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from resnets.analysis.complexity import Complexity, complexity
from resnets.chain import Chain, write_words
from resnets.describe.network import MOST_NUMBERS, Row
from resnets.errors import UserError
from resnets.other_systems import SYSTEMS, System
from resnets.papers.numbers import list_reports


@dataclass(frozen=True)
class ChainDescription:
    spec: Chain
    cost: Complexity
    rows: tuple[Row, ...]
    system: System | None  # None where the rows are not those of the table

    @property
    def changed(self) -> dict[str, Any]:
        """The fields in which it differs from the network whose name it bears."""
        if self.spec.name not in SYSTEMS:
            return {}
        original = SYSTEMS[self.spec.name].chain.to_dict()
        return {field: value for field, value in self.spec.to_dict().items() if value != original.get(field)}

    @property
    def reported(self) -> list[str]:
        return list_reports(self.spec.name) if self.system else []

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        spec, system = self.spec, self.system
        about = {} if system is None else {"source": system.source, "recipe": system.recipe}
        return {
            "name": spec.name,
            "family": "others",
            "changed": self.changed,
            "layers": spec.depth,
            "parameters": self.cost.parameters,
            "multiply_adds": self.cost.multiply_adds,
            "input": list(self.cost.input),
            "minimum_size": spec.min_size,
            "architecture": [dataclasses.asdict(row) for row in self.rows],
            **about,
            "reported": self.reported,
            "uncertain": list(system.uncertain) if system else [],
            "spec": spec.to_dict(),
        }


def describe_chain(spec: Chain, size: int | tuple[int, int] | None = None) -> ChainDescription:
    """Describe another system on images of `size` (by default its own)."""
    try:
        cost = complexity(spec, size)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise UserError(f"{spec.name} is too large to describe.") from error
    if cost.parameters > MOST_NUMBERS:
        raise UserError(f"{spec.name} is too large to describe.")
    rows = [
        Row(name, part.output, write_words(words), "", part.parameters, part.multiply_adds)
        for (name, words), part in zip(spec.parts, cost.stages, strict=True)
    ]
    known = SYSTEMS.get(spec.name)
    return ChainDescription(spec, cost, tuple(rows), known if known and known.chain.rows == spec.rows else None)
