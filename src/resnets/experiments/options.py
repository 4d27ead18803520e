"""The options of `reproduce` and `sweep`. No torch here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resnets.engine import ENGINES, MODES
from resnets.errors import UserError, shown
from resnets.experiments.budgets import BUDGETS
from resnets.options import DEVICE, SEEDS, THREADS, Options, option, parse_seeds, parse_threads

MOST_SEEDS = 10_000  # of a row or a variant


@dataclass(frozen=True)
class ReproduceOptions(Options):
    budget: str = option("hour", "how much of the original protocol is run", choices=BUDGETS)
    seeds: int | None = option(None, "runs of each row, instead of the budget's", least=1, most=MOST_SEEDS, metavar="N")
    rows: str | None = option(None, "only rows whose name fits a shell pattern: '*gate*'", metavar="PATTERN")
    shard: str | None = option(None, "one slice of the rows: 3/16, the third of sixteen", metavar="I/N")
    out: str = option("runs", "folder of the runs", metavar="DIR")
    results: str = option("results", "folder of the results", metavar="DIR")
    data_dir: str | None = option(None, "folder to look for CIFAR in", metavar="DIR")
    imagenet: str | None = option(
        None, "ImageNet's folder, with train and val, for the rows on ImageNet", metavar="DIR"
    )
    voc: str | None = option(None, "VOC's folder, for detection: VOC2012, or VOCdevkit", metavar="DIR")
    coco: str | None = option(None, "COCO's folder, for detection, with annotations and pictures", metavar="DIR")
    backbones: str | None = option(
        None, "folder with weights for detection: resnet101.safetensors, vgg16.pth", metavar="DIR"
    )
    bad_images: str = option("error", "images that cannot be decoded", choices=("error", "skip"), metavar="POLICY")
    device: str = option("auto", DEVICE)
    engine: str = option("auto", "how units are computed", choices=ENGINES)
    memory: str = option(
        "auto", "fast, lean, min, or auto: the first that fits", choices=(*MODES, "auto"), metavar="MODE"
    )
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")
    dry_run: bool = option(False, "plan and estimate, and run nothing")


@dataclass(frozen=True)
class RerunOptions(Options):
    seeds: tuple[int, ...] = option((), "only these seeds of the file: 0,1", parse=parse_seeds, metavar="N,N")
    out: str = option("runs", "folder of the runs", metavar="DIR")
    data_dir: str | None = option(None, "folder to look for CIFAR in", metavar="DIR")
    device: str = option("auto", DEVICE)
    engine: str = option("auto", "how units are computed", choices=ENGINES)
    memory: str = option(
        "auto", "fast, lean, min, or auto: the first that fits", choices=(*MODES, "auto"), metavar="MODE"
    )
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")
    quiet: bool = option(False, "show no progress")


@dataclass(frozen=True)
class SweepOptions(Options):
    """Which runs a sweep makes. `vary` is kept as pairs of a field and its values."""

    vary: tuple[Any, ...] = option(
        (),
        "train with each of these values: shortcut=identity,conv1x1; values with commas in them are separated by "
        "semicolons; several fields give every combination",
        metavar="FIELD=A,B",
    )
    seeds: tuple[int, ...] = option((), "a run for each of these seeds: 0,1,2", parse=parse_seeds, metavar="N,N")
    runs: int = option(1, "this many seeds, from --seed on", least=1, most=MOST_SEEDS, metavar="N")
    jobs: int = option(1, "runs at a time, each in its own process", least=1, most=1024, metavar="N")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "vary", _read_vary(self.vary))
        if self.seeds and self.runs > 1:
            raise UserError("seeds and runs both say which seeds to train with; give one of them.")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not SEEDS[0] <= seed <= SEEDS[1]:
                raise UserError(f"seeds must be whole numbers of 64 bits, not {shown(seed)}.")
        if len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds has {max(self.seeds, key=self.seeds.count)} twice.")

    def list_seeds(self, first: int = 0) -> tuple[int, ...]:
        if self.runs > SEEDS[1] + 1 - first:
            raise UserError(f"seeds must be whole numbers of 64 bits; {self.runs} of them from {first} on are not.")
        return self.seeds or tuple(range(first, first + self.runs))


def _read_vary(given: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Pairs from a mapping, or from texts such as `lr=0.1,0.3`."""
    if isinstance(given, str):
        given = (given,)
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given
    found: dict[str, tuple[Any, ...]] = {}
    for pair in pairs:
        name, values = _read_field(pair) if isinstance(pair, str) else pair
        name = str(name).replace("-", "_")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UserError(f"vary needs a list of values for {name}, not {shown(values)}.")
        if name in found:
            raise UserError(f"vary has {name} twice; write all its values in one list.")
        found[name] = tuple(values)
    return tuple(found.items())


def _read_field(text: str) -> tuple[str, list[str]]:
    match = re.fullmatch(r"([A-Za-z][A-Za-z_-]*)=(.+)", text, re.DOTALL)
    values = [value.strip() for value in match[2].split(";" if ";" in match[2] else ",")] if match else []
    if match is None or not all(values):
        raise UserError(f"vary is written as shortcut=identity,conv1x1, not {shown(text)}.")
    return match[1], values
