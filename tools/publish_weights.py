"""For maintainers: add the network of a finished run to the package.

    python -m tools.publish_weights runs/preresnet20-cifar10-cifar-hours-s0-1a2b3c4d

writes the weights, their card and their hash into the package. The numbers are those of the run, bit for bit in
float32; with `--half` they are rounded to float16, which takes half the space, and the rounded network is tested again
for its card. Of several seeds publish the first, never the best on the test set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

from resnets import records
from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.evaluation.evaluate import evaluate
from resnets.evaluation.score import Score
from resnets.papers.numbers import quote_paper
from resnets.runs import Run
from resnets.text import count, print_lines
from resnets.weights import pretrained
from resnets.weights.files import read_metadata
from resnets.weights.models import load
from resnets.weights.networks import save_weights
from resnets.zoo import spec_of


def publish(run: Run, folder: Path | None = None, *, half: bool = False) -> str:
    """Add a run's network to those in the package, in half precision if asked; its name."""
    folder = folder or pretrained.FOLDER
    result = run.result
    if result is None or "test" not in result:
        raise UserError(f"{run.path} is not finished or was not tested; only a run with a test error can be shipped.")
    identity = run.identity
    if identity.spec != spec_of(identity.spec.name, num_classes=identity.spec.num_classes):
        raise UserError(
            f"{run.path} is not the {identity.spec.name} that its name says; only named networks are shipped."
        )
    name = f"{identity.spec.name}.{identity.data}"
    origin = {"run": run.path.name, **run.origin}
    kept = {k: v for k, v in read_metadata(run.weights).items() if k != "format" and not k.startswith("resnets.")}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    net = load(run.weights, dtype=torch.float16 if half else None)
    save_weights(net, path, metadata={**kept, "provenance": json.dumps(origin)})
    data = path.read_bytes()
    rounded = evaluate(net.float(), run.data) if half else None
    write_atomically(folder / f"{name}.md", write_card(name, run, result, data, rounded).encode())
    listed = folder / "index.json"
    known = records.INDEX.read(listed) if listed.exists() else {}
    write_atomically(
        listed,
        (json.dumps({**known, name: hashlib.sha256(data).hexdigest()}, indent=1, sort_keys=True) + "\n").encode(),
    )
    return name


def write_card(name: str, run: Run, result: dict[str, Any], data: bytes, rounded: Score | None) -> str:
    """What a user must know: data, recipe, error, limits, licence, hash of the file `data`."""
    identity, origin, test = run.identity, run.origin, result["test"]
    spec, recipe = identity.spec, identity.recipe
    score = _read_score(test)
    views = {"mirrored": "With mirror images", "shifted": "With these also moved"}
    more = "".join(f" {what}: {_read_score(test[name])}." for name, what in views.items() if name in test)
    numbers = "float32, the run's own numbers"
    if rounded:
        numbers = f"the run's numbers rounded to float16, with which {rounded.wrong} of {rounded.images} are wrong"
    papers = quote_paper(spec, identity.data)
    classes = json.loads(read_metadata(run.weights).get("classes", "[]"))
    side = spec.input_size
    lines = [
        f"# {name}",
        "",
        f"`resnets.create({name!r}, pretrained=True)`, `resnets predict --weights {name}`",
        "",
        f"- Network: {spec.name}, {spec.depth} layers, {spec.num_classes} classes ({', '.join(classes)}).",
        f"- Data: {identity.data}, sha256 of pixels and labels {identity.digest}.",
        f"- Recipe: `{recipe.name}`, {recipe.length}, batch {recipe.batch}, seed {identity.seed}, "
        f"{count(result['steps'])} steps; `{origin['command']}`, started at commit {origin['commit']}, torch "
        f"{origin['versions']['torch']}, {origin['machine']['cpu']}.",
        f"- Test: {score}.{more}{f' Beside it, {papers}.' if papers else ''}",
        f"- Limits: made for pictures of {side}x{side} pixels like those it was trained on. Every picture gets"
        " one of its classes; its probabilities have not been calibrated, and it was not tested on other data, against"
        " attacks or for fairness. Not for decisions about people.",
        "- Licence: that of this package, MIT. The data have their own terms.",
        f"- File: {len(data):,} bytes, {numbers}; sha256 {hashlib.sha256(data).hexdigest()}.",
        "",
    ]
    return "\n".join(lines)


def _read_score(test: dict[str, Any]) -> Score:
    return Score(test["images"], test["wrong"], test["loss"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.publish_weights", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("runs", nargs="+", help="folders of finished runs", metavar="RUN")
    parser.add_argument("--half", action="store_true", help="round the weights to float16, and test them again")
    parser.add_argument("--into", type=Path, help="another folder than the package's", metavar="DIR")
    args = parser.parse_args(argv)
    try:
        for path in args.runs:
            name = publish(Run(Path(path)), args.into, half=args.half)
            print_lines(f"{name}: {(args.into or pretrained.FOLDER) / name}.safetensors")
    except UserError as error:
        print_lines(f"publish_weights: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
