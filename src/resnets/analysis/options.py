"""The options of `analyze`: no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from resnets.options import DATA, DEVICE, Options, option, parse_seed


@dataclass(frozen=True)
class AnalyzeOptions(Options):
    """How `analyze` measures."""

    data: object = option(None, f"{DATA} (what it was trained on, else cifar10)", metavar="DATA")
    batch: int = option(32, "images at a time", least=1, aliases={"batch_size": "{}"})
    batches: int = option(1, "batches to average over", least=1)
    seed: int = option(0, "seed of new weights and of the choice of images", parse=parse_seed)
    statistics: str = option(
        "batch", "BN statistics: batch, as in training, or running", metavar="WHICH", choices=("batch", "running")
    )
    data_dir: str | Path | None = option(None, "folder to look for the data in", metavar="DIR", aliases={"dir": "{}"})
    device: str = option("auto", DEVICE, show=False)
