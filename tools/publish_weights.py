"""For maintainers: add the network of a finished run to the package.

    python -m tools.publish_weights runs/preresnet20-cifar10-cifar-hours-s0-1a2b3c4d

writes the weights, their card and their hash into the package. The numbers are those of the run, bit for bit in
float32: a net of 20 layers takes a megabyte, and one in float16 would have to be tested again. Of several
seeds publish the first, never the best on the test set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from resnets import records
from resnets.atomic import write_atomically
from resnets.errors import UserError
from resnets.evaluation.score import Score
from resnets.papers.numbers import quote_paper
from resnets.runs import Run
from resnets.text import count, print_lines
from resnets.weights import pretrained
from resnets.weights.files import read_metadata
from resnets.weights.models import load
from resnets.weights.networks import save_weights
from resnets.zoo import spec_of


def publish(run: Run, folder: Path | None = None) -> str:
    """Add a run's network to those in the package; its name."""
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
    save_weights(load(run.weights), path, metadata={**kept, "provenance": json.dumps(origin)})
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    write_atomically(folder / f"{name}.md", write_card(name, run, result, len(data), digest).encode())
    listed = folder / "index.json"
    known = records.INDEX.read(listed) if listed.exists() else {}
    write_atomically(listed, (json.dumps({**known, name: digest}, indent=1, sort_keys=True) + "\n").encode())
    return name


def write_card(name: str, run: Run, result: dict[str, Any], size: int, digest: str) -> str:
    """What a user must know: data, recipe, error, limits, licence, hash."""
    identity, origin, test = run.identity, run.origin, result["test"]
    spec, recipe = identity.spec, identity.recipe
    score = Score(test["images"], test["wrong"], test["loss"])
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
        f"- Test: {score}.{f' Beside it, {papers}.' if papers else ''}",
        f"- Limits: made for pictures of {side}x{side} pixels like those it was trained on. Every picture gets"
        " one of its classes; its probabilities have not been calibrated, and it was not tested on other data, against"
        " attacks or for fairness. Not for decisions about people.",
        "- Licence: that of this package, MIT. The data have their own terms.",
        f"- File: {size:,} bytes, float32, the run's own numbers; sha256 {digest}.",
        "",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.publish_weights", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("runs", nargs="+", help="folders of finished runs", metavar="RUN")
    parser.add_argument("--into", type=Path, help="another folder than the package's", metavar="DIR")
    args = parser.parse_args(argv)
    try:
        for path in args.runs:
            name = publish(Run(Path(path)), args.into)
            print_lines(f"{name}: {(args.into or pretrained.FOLDER) / name}.safetensors")
    except UserError as error:
        print_lines(f"publish_weights: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
