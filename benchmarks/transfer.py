"""Does a network that was trained on other images learn new ones better than a new network, on little data and time?

    python -m benchmarks.transfer --weights preresnet20.cifar10

Trains by the recipe `cifar-finetune` on a few images of a set, with several seeds: from the weights, and from new ones
at the same rates and at those of `cifar-quick`, which is made for new weights. Every training sees the same images,
takes as many steps and uses the test set once. Writes results/transfer/NETWORK-DATA.json; a stopped comparison goes
on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.paired import difference
from benchmarks.results import begun
from resnets.atomic import write_atomically
from resnets.data import load
from resnets.data.images import Images
from resnets.errors import UserError
from resnets.recipe import RECIPES
from resnets.runs import Run, Summary
from resnets.training.session import train
from resnets.weights.models import open_model

ROOT = Path(__file__).resolve().parents[1]


def few(images: Images, count: int) -> Images:
    """So many of the training images, as many of each class; all the test images."""
    _, chosen = images.split(count, seed=0)
    return dataclasses.replace(
        images,
        name=f"{images.name}/{count}",
        train_images=images.train_images[chosen],
        train_labels=images.train_labels[chosen],
    ).with_digest(hashlib.sha256(f"{images.digest} {count} trained".encode()).hexdigest())


def ways(weights: str) -> dict[str, dict[str, Any]]:
    quick = RECIPES["cifar-quick"]
    rates = {"lr": quick.lr, "muon_lr": quick.muon_lr}
    return {"from weights": {"weights": weights}, "new": {}, "new, at the rates of cifar-quick": rates}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    if args.seeds < 2:
        raise UserError(f"--seeds must be at least 2, or chance cannot be told, not {args.seeds}.")
    open_model(args.weights)  # a mistake is found before the first run
    images = few(load(args.data, args.dir), args.images)
    runs: dict[str, list[Run]] = {way: [] for way in ways(args.weights)}
    for seed in range(args.seeds):
        for way, options in ways(args.weights).items():
            run = train(
                args.net,
                images,
                RECIPES["cifar-finetune"],
                seed=seed,
                out=args.runs,
                quiet=True,
                length=args.length,
                **options,
            )
            runs[way].append(run)
            print(f"seed {seed}, {way}: test error {run.result['test']['error']:.2f} %", flush=True)
    errors = {way: [run.result["test"]["error"] for run in some] for way, some in runs.items()}
    first, *others = errors
    return {
        "network": runs[first][0].identity.spec.to_dict(),
        "data": {"name": args.data, "training_images": args.images, "digest": images.digest},
        "weights": {"name": Path(args.weights).name, "sha256": runs[first][0].identity.weights},
        "recipes": {way: some[0].identity.recipe.to_dict() for way, some in runs.items()},
        "steps": runs[first][0].result["steps"],
        "threads": torch.get_num_threads(),
        "errors": errors,
        "gains": {
            way: dict(zip(("mean", "bound_95"), difference(errors[way], errors[first]), strict=True)) for way in others
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="preresnet20")
    parser.add_argument(
        "--weights", default="preresnet20.cifar10", help="a pretrained network, a file or a finished run"
    )
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--dir", help="a folder to look for the data in")
    parser.add_argument("--images", type=int, default=1000, help="to train on (1000)")
    parser.add_argument("--length", default="10ep", help="of each training (10ep)")
    parser.add_argument("--seeds", type=int, default=4, help="at least 2 (4)")
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "transfer", help="folder of the runs")
    parser.add_argument("--out", type=Path, help="the result (results/transfer/NETWORK-DATA.json)")
    args = parser.parse_args()
    told = begun("benchmarks.transfer")
    try:
        found = compare(args)
    except UserError as error:
        print(f"transfer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # the run has said how far it came
        return 130
    for way, errors in found["errors"].items():
        print(f"{way}: {Summary(tuple(errors))}")
    for way, gain in found["gains"].items():
        print(f"the weights gain {gain['mean']:+.2f} points over {way}; {gain['bound_95']:.2f} may be chance")
    out = args.out or ROOT / "results" / "transfer" / f"{args.net}-{args.data}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, (json.dumps({**found, **told}, indent=1) + "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
