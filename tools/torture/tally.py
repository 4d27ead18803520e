"""What a section came to, as it is written to results/torture.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tools.torture.promises import KINDS

SEEDS = 5  # of each fault that are kept
MIB = 1 << 20


@dataclass
class Tally:
    """Counts of one section; equal faults are kept as one, with the first seeds that show it."""

    tried: int = 0
    broken: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    most_memory: int = 0  # bytes that one attack took
    longest: float = 0.0  # seconds of one attack
    skipped: dict[str, int] = field(default_factory=dict)
    faults: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, seed: int, answer: dict[str, Any]) -> bool:
        """Count an answer; True if it shows a fault that was not seen before."""
        self.tried += answer["tried"]
        self.most_memory = max(self.most_memory, answer.get("memory", 0))
        self.longest = max(self.longest, answer.get("seconds", 0.0))
        if reason := answer.get("skipped"):
            self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if "kind" not in answer:
            return False
        kind, what = answer["kind"], answer["what"]
        self.broken[kind] += answer.get("amount", 1)
        new = (kind, what) not in self.faults
        said = {"said": answer["said"]} if "said" in answer else {}  # by the first
        fault = self.faults.setdefault((kind, what), {"kind": kind, "what": what, **said, "count": 0, "replay": []})
        fault["count"] += 1
        if len(fault["replay"]) < SEEDS:
            fault["replay"].append(f"{name}:{seed}")
        return new

    @property
    def held(self) -> bool:
        return not any(self.broken.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "tried": self.tried,
            **self.broken,
            "most memory, MiB": round(self.most_memory / MIB),
            "longest, s": round(self.longest, 1),
            "skipped": self.skipped,
            "faults": sorted(self.faults.values(), key=lambda fault: -fault["count"]),
        }
