"""What the benchmark is to show, and what it showed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.tables.ratios import Spread, lines, ratio, values

GIB = 2**30
MODES = ("fast", "lean", "min")


@dataclass(frozen=True)
class Measured:
    """The number that is held against an aim, and how it is told."""

    value: float
    text: str


@dataclass(frozen=True)
class Aim:
    what: str
    least: float
    then: float | None  # what is wanted after that
    measure: Callable[[Path], Measured | None]  # None: not measured
    below: str = ""  # the unit of an aim that is to be stayed under; none: a ratio that is to be reached

    def wish(self, value: float | None) -> str:
        return "" if value is None else f"under {value:g} {self.below}" if self.below else f"{value:g}"

    def met(self, measured: Measured | None) -> str:
        if measured is None:
            return "not measured"
        for limit, word in ((self.then, "more than that"), (self.least, "yes")):
            if limit is not None and (measured.value < limit if self.below else measured.value >= limit):
                return word
        return "no"


def _speed(section: str, line: str, base: str, ours: str) -> Callable[[Path], Measured | None]:
    def measure(results: Path) -> Measured | None:
        found = lines(results, section).get(line)
        spread = ratio(found, base, ours) if found else None
        return Measured(spread.median, str(spread)) if spread else None

    return measure


def _memory_at_no_more_time(results: Path) -> Measured | None:
    """The leanest mode that is not slower than timm; where all are, the leanest, which then does not count."""
    line = lines(results, "memory").get("preresnet1001, batch 64")
    modes = []
    for mode in MODES if line else ():
        memory, time = ratio(line, "timm", mode, "peak"), ratio(line, "timm", mode)  # type: ignore[arg-type]
        if memory and time:
            modes.append((time.median >= 1, memory.median, memory, time, mode))
    if not modes:
        return None
    fits, value, memory, time, mode = max(modes, key=lambda m: m[:2])
    return Measured(value if fits else 0, f"{memory} in {mode}, at {time} times timm's speed")


def _deepest_memory(results: Path) -> Measured | None:
    line = lines(results, "memory").get("preresnet1001, batch 128")
    peaks = {mode: peak for mode in MODES if line and (peak := values(line, mode, "peak"))}
    if not peaks:
        return None
    mode, peak = min(peaks.items(), key=lambda item: max(item[1]))
    return Measured(max(peak) / GIB, f"{Spread.of([p / GIB for p in peak])} GiB in {mode}")


def _help(results: Path) -> Measured | None:
    """Held against seconds, told as a ratio: seconds are a matter of the machine."""
    line = lines(results, "startup").get("a new process")
    spent = values(line, "resnets --help") if line else None
    torch = ratio(line, "import torch", "resnets --help") if line else None
    if not spent or not torch:
        return None
    return Measured(Spread.of(spent).median, f"`import torch` takes {torch} times as long")


AIMS = (
    Aim("preresnet164, training speed", 1.5, 2, _speed("step", "preresnet164, batch 128", "timm", "fast")),
    Aim("preresnet1001, training speed", 1.5, 2, _speed("step", "preresnet1001, batch 16", "timm", "fast")),
    Aim("preresnet110, training speed", 1.15, 1.4, _speed("step", "preresnet110, batch 128", "timm", "fast")),
    Aim("resnet110, training speed", 1.15, 1.4, _speed("step", "resnet110, batch 128", "timm", "fast")),
    Aim("preresnet50, training speed", 1.1, 1.3, _speed("step", "preresnet50, batch 8", "timm", "fast")),
    Aim("preresnet1001, batch 64, times less memory at no more than timm's time", 2, 3, _memory_at_no_more_time),
    Aim("preresnet1001, batch 128, peak memory", 3, 2, _deepest_memory, below="GiB"),
    Aim("preresnet110, inference speed", 1.3, 1.5, _speed("inference", "preresnet110, batch 128", "timm", "frozen")),
    Aim("preresnet50, inference speed", 1.3, 1.5, _speed("inference", "preresnet50, batch 8", "timm", "frozen")),
    Aim("batches from JPEG files, speed", 2, 3, _speed("jpeg", "64 images", "PIL", "ours")),
    Aim("CIFAR batches, speed", 5, 7, _speed("data", "128 images", "PIL", "ours")),
    Aim(
        "CIFAR-10 to 20 % error, time against the papers' recipe", 3, 6,
        _speed("race", "preresnet20, to 20 % error", "cifar-paper", "cifar-quick"),
    ),
    Aim("`resnets --help`", 0.3, None, _help, below="s"),
)  # fmt: skip


def rows(results: Path) -> list[list[str]]:
    told = []
    for aim in AIMS:
        measured = aim.measure(results)
        text = measured.text if measured else "-"
        told.append([aim.what, aim.wish(aim.least), aim.wish(aim.then), text, aim.met(measured)])
    return told
