"""Train the runs of a published result again, from its file alone: `resnets.rerun`.

torch is imported when something is trained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets import records
from resnets.errors import DivergedError, UserError, one_of
from resnets.experiments.options import RerunOptions
from resnets.options import takes
from resnets.runs import RunKey

_NAME = re.compile(r"(.+?)(?:@([0-9]{1,5}))?(?:/([0-9]{1,7}))?")  # as `load_resized` names sets: cifar10@16/2000


@dataclass(frozen=True)
class Repeat:
    """A run of the file, and the same run now. Errors are in %, and None for a run that diverged."""

    seed: int
    split: str  # the images whose error counts
    published: float | None
    found: float | None
    path: Path  # of the new run

    @property
    def agrees(self) -> bool:
        """Whether both have the same error, as they must on one machine with one version."""
        return self.published == self.found


@takes(RerunOptions)
def rerun(file: str | Path, *, options: RerunOptions) -> list[Repeat]:
    """Train every seed of a result file again, with the network, data and recipe that the file names.

    It takes files of `resnets reproduce` and of `resnets results`. Runs go to `out`, where stopped ones resume and
    finished ones are read; the file is not changed.

    >>> resnets.rerun("results/hour/resnet110-cifar10.json")[0].found
    """
    path = Path(file)
    result = records.RERUN.read(path)
    for field, what in (("teacher", "learned from a teacher"), ("weights", "began with weights")):
        if result.get(field):
            raise UserError(
                f"{path} {what} that the file does not hold; `resnets reproduce EXPERIMENT --rows ROW --out DIR` "
                "trains both."
            )
    seeds = {run["seed"]: run for run in result["runs"]}
    chosen = options.seeds or tuple(seeds)
    for seed in chosen:
        if seed not in seeds:
            raise one_of(f"seed of {path}", str(seed), map(str, seeds))
    images = _load(path, result, options.data_dir)
    return [_repeat(result, seeds[seed], images, options) for seed in chosen]


def _load(path: Path, result: dict[str, Any], folder: str | None) -> Any:
    """The images that the file names, as they were: a set, perhaps scaled, perhaps with fewer test images."""
    from resnets.data.resized import load_resized

    match = _NAME.fullmatch(result["data"]["name"])
    name, side, tests = match.groups() if match else (result["data"]["name"], None, None)
    images = load_resized(name, int(side) if side else None, int(tests) if tests else None, dir=folder)
    if images.digest != result["data"]["digest"]:
        raise UserError(f"{path} was trained on other images of {name}: their hash differs from that of the data here.")
    return images


def _repeat(result: dict[str, Any], run: dict[str, Any], images: Any, options: RerunOptions) -> Repeat:
    from resnets.training.session import train

    key = RunKey.from_dict({**result, "seed": run["seed"]})
    split = "test" if "test" in run["result"] or "failed" in run["result"] else "validation"
    published = run["result"].get(split, {}).get("error")
    try:
        new = train(
            key.spec,
            images,
            key.recipe,
            seed=key.seed,
            out=options.out,
            test=split == "test",
            device=options.device,
            engine=options.engine,
            memory=options.memory,
            threads=options.threads,
            quiet=options.quiet,
        )
    except DivergedError as error:
        return Repeat(key.seed, split, published, None, error.path)
    return Repeat(key.seed, split, published, (new.result or {})[split]["error"], new.path)
