"""What a training is going to do, before its first step. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    run: Path
    network: str
    data: str
    examples: int  # to train on
    recipe: str
    why: str  # the recipe was chosen, if the user named none
    batch: int
    steps: int
    done: int  # of these
    notices: tuple[str, ...] = ()  # sentences about what the user may not have meant

    @property
    def epochs(self) -> float:
        return self.steps * self.batch / self.examples

    def __str__(self) -> str:
        recipe = f"recipe {self.recipe}" + (f" ({self.why})" if self.why else "")
        return (
            f"{self.network} on {self.data}: {recipe}, {self.steps:,} steps of {self.batch:,} "
            f"({self.epochs:.4g} epochs of {self.examples:,} images)."
        )
