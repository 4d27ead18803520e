"""The options of `train`, in Python, on the command line and in a configuration file. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from resnets.engine import ENGINES, MODES
from resnets.options import BAD_BOXES, DATA, DEVICE, THREADS, Options, list_meanings, option, parse_seed, parse_threads
from resnets.recipe import RECIPES


@dataclass(frozen=True)
class TrainOptions(Options):
    """The options of a training beside the network and the fields of the recipe."""

    data: str = option(
        "cifar10",
        DATA,
        metavar="DATA",
    )
    data_dir: str | None = option(
        None, "folder in which to look for the data", metavar="DIR", aliases={"dir": "{}"}, show=False
    )
    recipe: str = option("auto", f"{', '.join(RECIPES)}; auto: by data and weights", metavar="RECIPE", show=False)
    weights: str | None = option(
        None, "weights to begin with: a file, a finished run or the name of a pretrained network", metavar="WEIGHTS"
    )
    teacher: str | None = option(
        None, "network to learn from, for recipes with hint or distill: a file or a finished run", metavar="WEIGHTS"
    )
    seed: int = option(0, "seed of the weights, the order and the crops", parse=parse_seed, metavar="N")
    out: str = option("runs", "folder of the runs", metavar="DIR")
    curve: bool = option(False, "test after every epoch, for the curve only")
    test: bool = option(True, "test at the end")
    device: str = option("auto", DEVICE, show=False)
    engine: str = option("auto", list_meanings(ENGINES), show=False)
    memory: str = option(
        "auto", f"{list_meanings(MODES)}; auto: the first of these that fits", metavar="MODE", show=False
    )
    threads: str = option("auto", THREADS, parse=parse_threads, metavar="N|auto")
    checkpoint_every: float = option(60.0, "seconds between checkpoints", least=0, metavar="SECONDS")
    log_every: int = option(50, "steps between lines of metrics", least=1, metavar="N")
    signal_every: int = option(
        0,
        "measure the signal along the units every N steps ('resnets analyze RUN' shows it); 0: never",
        least=0,
        metavar="N",
        aliases={"every": "{}"},
        show=False,
    )
    bad_images: str = option(
        "error", "images that cannot be decoded: error or skip", choices=("error", "skip"), metavar="POLICY"
    )
    bad_boxes: str = option(
        "error", f"boxes without area, outside of their picture or of unknown classes: {list_meanings(BAD_BOXES)}",
        choices=BAD_BOXES, metavar="POLICY", show=False,
    )  # fmt: skip
    decoders: int | None = option(
        None, "processes that decode images (by default by the device and the cores)", least=1, metavar="N"
    )
    tensorboard: bool = option(False, "also write TensorBoard event files")
    quiet: bool = option(False, "show no progress")
