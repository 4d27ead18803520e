"""The targets of the benchmark, and what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from resnets import records
from resnets.runs import Summary
from tools.tables.ratios import Spread, compute_ratio, read_lines, read_values

GIB = 2**30
MODES = ("fast", "lean", "min")


@dataclass(frozen=True)
class Measured:
    """The number that is compared with an aim, and its text in the table."""

    value: float
    text: str


@dataclass(frozen=True)
class Aim:
    what: str
    least: float
    then: float | None  # the next target
    measure: Callable[[Path], Measured | None]  # None: not measured
    below: str = ""  # the unit of an upper limit; without a unit it is a ratio to reach

    def describe_limit(self, value: float | None) -> str:
        return "" if value is None else f"under {value:g} {self.below}" if self.below else f"{value:g}"

    def judge(self, measured: Measured | None) -> str:
        if measured is None:
            return "not measured"
        for limit, word in ((self.then, "more than that"), (self.least, "yes")):
            if limit is not None and (measured.value < limit if self.below else measured.value >= limit):
                return word
        return "no"


def _compare(section: str, line: str, base: str, ours: str) -> Callable[[Path], Measured | None]:
    def measure(results: Path) -> Measured | None:
        found = read_lines(results, section).get(line)
        spread = compute_ratio(found, base, ours) if found else None
        return Measured(spread.median, str(spread)) if spread else None

    return measure


def _measure_memory_at_equal_speed(results: Path) -> Measured | None:
    """The leanest mode that is not slower than timm; if all are slower, the leanest, which does not meet the aim."""
    line = read_lines(results, "memory").get("preresnet1001, batch 64")
    modes = []
    for mode in MODES if line else ():
        memory, time = compute_ratio(line, "timm", mode, "peak"), compute_ratio(line, "timm", mode)  # type: ignore[arg-type]
        if memory and time:
            modes.append((time.median >= 1, memory.median, memory, time, mode))
    if not modes:
        return None
    fits, value, memory, time, mode = max(modes, key=lambda m: m[:2])
    return Measured(value if fits else 0, f"{memory} in {mode}, at {time} times timm's speed")


def _measure_deepest(results: Path) -> Measured | None:
    line = read_lines(results, "memory").get("preresnet1001, batch 128")
    peaks = {mode: peak for mode in MODES if line and (peak := read_values(line, mode, "peak"))}
    if not peaks:
        return None
    mode, peak = min(peaks.items(), key=lambda item: max(item[1]))
    return Measured(max(peak) / GIB, f"{Spread.of([p / GIB for p in peak])} GiB in {mode}")


def _measure_startup(results: Path) -> Measured | None:
    """Judged by seconds, shown as a ratio: seconds depend on the machine."""
    line = read_lines(results, "startup").get("a new process")
    spent = read_values(line, "resnets --help") if line else None
    torch = compute_ratio(line, "import torch", "resnets --help") if line else None
    if not spent or not torch:
        return None
    return Measured(Spread.of(spent).median, f"`import torch` takes {torch} times as long")


def _measure_first_step(results: Path) -> Measured | None:
    """Judged by the seconds of a training of one step, shown as a ratio."""
    line = read_lines(results, "first").get("preresnet20, a training of one step")
    spent = read_values(line, "one step") if line else None
    torch = compute_ratio(line, "one step", "import torch") if line else None
    if not spent or not torch:
        return None
    return Measured(Spread.of(spent).median, f"{torch} times as long as `import torch`")


def _read_tests(results: Path, training: str) -> list[dict[str, Any]]:
    """The tests at the end of published trainings, one for each seed; none if they are not published."""
    path = results / "cifar" / f"{training}.json"
    return [run["result"]["test"] for run in records.load(path)["runs"]] if path.exists() else []


def _measure_quick_training(results: Path) -> Measured | None:
    """The median test error of what `make train` runs."""
    errors = tuple(test["error"] for test in _read_tests(results, "preresnet12_w32-cifar-quick"))
    return Measured(median(errors), str(Summary(errors))) if errors else None


def _measure_race_to_94(results: Path) -> Measured | None:
    """A speed that counts only if three seeds or more have at most 6 % of the test images wrong on average."""
    line = read_lines(results, "race94").get("preresnet12_w48, to the end of the recipe")
    ratio = compute_ratio(line, "airbench94_muon", "cifar-94") if line else None
    tests = _read_tests(results, "preresnet12_w48-cifar-94")
    errors = [test["shifted"]["error"] for test in tests if "shifted" in test]
    if not ratio or not errors:
        return None
    reached = len(errors) >= 3 and mean(errors) <= 6
    text = f"{ratio}, mean test error of {len(errors)} seeds {mean(errors):.2f} % with six views"
    return Measured(ratio.median if reached else 0, text)


AIMS = (
    *(
        Aim(
            f"{net}, time of its convolutions by PyTorch over the whole step", least, then,
            _compare("step", f"{net}, batch {batch}", "roofline", "fast"),
        )
        for net, batch, least, then in (
            ("preresnet164", 128, 1, 1.2), ("preresnet1001", 16, 1, 1.2),
            ("preresnet110", 128, 1.3, 1.6), ("resnet110", 128, 1.3, 1.6),
        )
    ),
    *(
        Aim(f"{net}, training speed", 1.8, 2.2, _compare("step", f"{net}, batch 8", "timm", "fast"))
        for net in ("resnet50", "preresnet50")
    ),
    *(
        Aim(
            f"{net}, speed kept beside one busy process", 0.65, 0.75,
            _compare("busy", f"{net}, batch {batch}", "fast, alone", "fast, busy"),
        )
        for net, batch in (("preresnet20", 128), ("preresnet110", 64))
    ),
    Aim("preresnet1001, batch 64, times less memory at no more than timm's time", 2, 3, _measure_memory_at_equal_speed),
    Aim("preresnet1001, batch 128, peak memory", 3, 2, _measure_deepest, below="GiB"),
    Aim("preresnet110, inference speed", 3, 4, _compare("inference", "preresnet110, batch 128", "timm", "frozen")),
    *(
        Aim(f"{net}, inference speed", 2.2, 3, _compare("inference", f"{net}, batch 8", "timm", "frozen"))
        for net in ("resnet50", "preresnet50")
    ),
    *(
        Aim(
            f"{net}, one image, against ONNX Runtime", 1, 1.5,
            _compare("latency", f"{net}, batch 1", "onnxruntime", "frozen"),
        )
        for net in ("preresnet20", "preresnet110", "resnet50")
    ),
    Aim("batches from JPEG files, speed", 3, 4, _compare("jpeg", "64 images", "PIL", "ours")),
    Aim("CIFAR batches, speed", 5, 7, _compare("data", "128 images", "PIL", "ours")),
    Aim(
        "CIFAR-10 to 20 % error, time against the papers' recipe", 3, 6,
        _compare("race", "preresnet20, to 20 % error", "cifar-paper", "cifar-quick"),
    ),
    Aim("test error of `make train`", 9.5, 8.75, _measure_quick_training, below="%"),
    Aim("CIFAR-10 to 94 %, time against airbench94_muon", 1, 1.5, _measure_race_to_94),
    Aim(
        "preresnet20, two seeds side by side, against one after the other", 1.3, None,
        _compare("jobs", "preresnet20, two seeds", "one after the other", "side by side"),
    ),
    Aim("preresnet20, start of a training to its first step", 5, 3, _measure_first_step, below="s"),
    Aim("`resnets --help`", 0.3, None, _measure_startup, below="s"),
)  # fmt: skip


def list_rows(results: Path) -> list[list[str]]:
    found = []
    for aim in AIMS:
        measured = aim.measure(results)
        text = measured.text if measured else "-"
        found.append([aim.what, aim.describe_limit(aim.least), aim.describe_limit(aim.then), text, aim.judge(measured)])
    return found
