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
from resnets.text import print_lines, print_table


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

    def print_memory(self) -> None:
        told = self.memory()
        room = self._room(told["available"])
        print_lines("", f"Memory of training with batches of {self.batch}, in MiB; {room}:", "")
        header = ("mode", "peak", "process", "weights", "maps", "", "what is kept")
        rows = []
        for mode, row in told["modes"].items():
            numbers = [f"{row[key] >> 20:,}" for key in ("total", "base", "weights", "maps")]
            word = "auto" if mode == told["auto"] else "fits" if row["fits"] else "too much"
            rows.append([mode, *numbers, word, MODES[mode]])
        print_table(header, rows, right=header[1:5])

    def _room(self, room: int | None) -> str:
        return "how much there is is not known" if room is None else f"{room >> 20:,} are available"

    def print_engine(self) -> None:
        print_lines("", "How it is trained here:", "")
        print_table(("what", "value", "why"), [list(line) for line in chosen(self.spec, self.batch, self.size)])
