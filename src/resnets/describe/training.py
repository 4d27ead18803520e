"""How a network would be trained here: the memory it takes in each mode, and what the engine chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resnets.chain import Chain, NetworkSpec
from resnets.engine import MODES
from resnets.engine.device import choose
from resnets.engine.explain import explain
from resnets.engine.memory_estimate import forecast
from resnets.engine.system_memory import available


@dataclass(frozen=True)
class Training:
    """A network, a batch and the size of its images."""

    spec: NetworkSpec
    batch: int
    size: int | tuple[int, int] | None

    def memory(self) -> dict[str, Any]:
        """Bytes in each mode, and the mode that `--memory auto` takes."""
        device = choose("auto")
        room = available(device)
        modes = {}
        for mode in ("fast",) if isinstance(self.spec, Chain) else MODES:
            estimate = forecast(self.spec, self.batch, self.size, mode, device=device.type)
            parts = {name: getattr(estimate, name) for name in ("total", "base", "weights", "maps")}
            modes[mode] = {**parts, "fits": estimate.fits(room)}
        auto = next((mode for mode in modes if modes[mode]["fits"]), mode)
        return {"batch": self.batch, "available": room, "modes": modes, "auto": auto}

    def engine(self) -> list[dict[str, str]]:
        return [line._asdict() for line in explain(self.spec, self.batch, self.size)]
