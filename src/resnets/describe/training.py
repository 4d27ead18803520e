"""How a network would be trained here: the memory it takes in each mode, and what the engine chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resnets.engine import MODES
from resnets.engine.device import choose
from resnets.engine.explain import chosen
from resnets.engine.memory_estimate import fastest, forecast
from resnets.engine.system_memory import available
from resnets.spec import Spec


@dataclass(frozen=True)
class Training:
    """A network, a batch and the size of its images."""

    spec: Spec
    batch: int
    size: int | tuple[int, int] | None

    def memory(self) -> dict[str, Any]:
        """Bytes in each mode, and the mode that `--memory auto` takes."""
        device = choose("auto")
        room = available(device)
        modes = {}
        for mode in MODES:
            told = forecast(self.spec, self.batch, self.size, mode, device=device.type)
            modes[mode] = {
                "total": told.total,
                "base": told.base,
                "weights": told.weights,
                "maps": told.maps,
                "fits": told.fits(room),
            }
        auto = fastest(self.spec, self.batch, self.size, room, device.type).mode
        return {"batch": self.batch, "available": room, "modes": modes, "auto": auto}

    def engine(self) -> list[dict[str, str]]:
        return [line._asdict() for line in chosen(self.spec, self.batch, self.size)]
