"""Train by the plain engine and by each memory mode of our own, with several seeds, and compare where they end.

    python -m benchmarks.agreement --seeds 5 --steps 300

Engines round differently, so two trainings of one seed part after a while and end as two seeds do. What must hold is
that no engine ends better or worse than another: for each mode the differences to the plain engine, seed by seed, are
put to Student's t. Writes results/bench/agreement.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch

from benchmarks.paired import difference
from benchmarks.results import begun
from resnets.atomic import write_atomically
from resnets.data import load
from resnets.data.images import Images
from resnets.recipe import recipe_of
from resnets.training.classification import Classification
from resnets.training.loop import Trainer
from resnets.zoo import spec_of

ROOT = Path(__file__).resolve().parents[1]
WAYS = {
    "plain": {"engine": "plain", "memory": "fast"},
    **{mode: {"engine": "auto", "memory": mode} for mode in ("fast", "min")},
}


def end_of(way: str, data: Images, seed: int, args: argparse.Namespace) -> float:
    """The mean training loss over the last fifty steps."""
    recipe = recipe_of("cifar-paper", length=f"{args.steps}it", batch=64, sizes="16@0", warmup="20it", lr=0.1)
    trainer = Trainer(Classification(spec_of(args.net), data), recipe, seed, **WAYS[way])
    losses = []
    for step in range(args.steps):
        trainer.step(step)
        losses.append(trainer.means(step, step)["loss"])
    return statistics.fmean(losses[-50:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="preresnet20")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "agreement.json")
    args = parser.parse_args()
    told = begun("benchmarks.agreement")
    told |= {"net": args.net, "data": args.data, "steps": args.steps, "threads": torch.get_num_threads()}
    data = load(args.data, None)
    ends: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(args.seeds):
        for way, found in ends.items():
            found.append(end_of(way, data, seed, args))
            print(f"seed {seed}, {way}: {found[-1]:.4f}", flush=True)
    verdicts = {}
    for way in list(WAYS)[1:]:
        mean, bound = difference(ends[way], ends["plain"])
        verdicts[way] = {"mean_difference": mean, "bound_95": bound, "within_noise": abs(mean) <= bound}
        print(f"{way} against plain: {mean:+.4f}, within {bound:.4f} is noise")
    write_atomically(args.out, (json.dumps({**told, "ends": ends, "verdicts": verdicts}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
