"""What `train`, `eval` and `predict` print of detectors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.cli.results import trace_weights, write_result
from resnets.errors import UserError
from resnets.text import print_json, print_lines, print_table

if TYPE_CHECKING:
    from resnets.evaluation.options import EvaluateOptions
    from resnets.runs import Run


def describe_map(score: Mapping[str, Any]) -> str:
    """`mAP 73.2 % (95 % interval 71.0 to 75.1, voc2007, 4,952 pictures)`."""
    if score["map"] is None:
        return f"no mAP: {score['images']:,} pictures have no object to be found"
    low, high = score["interval"]
    pictures = f"{score['metric']}, {score['images']:,} pictures"
    return f"mAP {score['map']:.2f} % (95 % interval {low:.2f} to {high:.2f}, {pictures})"


def print_detection(run: Run, what: str) -> None:
    """The scores of a finished run of a detector."""
    result = run.result or {}
    for split in ("validation", "test"):
        if split in result:
            print_lines(f"{what}: {split} {describe_map(result[split])}")
    if "test" in result:
        print_classes(result["test"])
    print_lines(f"run: {run.path}")


def evaluate_detectors(
    args: argparse.Namespace, options: EvaluateOptions, changes: dict[str, Any], warn: Callable[[str], None]
) -> None:
    """`resnets eval` of detectors: one, an ensemble, or one against another."""
    if args.mistakes:
        raise UserError("--mistakes is for classifiers; --per-class prints the precision of each class.")
    from resnets.detection.score import compare_scores
    from resnets.evaluation.evaluate import evaluate
    from resnets.progress import Console

    scores = [
        evaluate(models, options=options, changes=changes, progress=Console(), warn=warn)
        for models in (args.models, *([[args.compare]] if args.compare else ()))
    ]
    found = [{**score.context, **score.to_dict()} for score in scores]
    result, text = found[0], ""
    if len(scores) > 1:
        difference = compare_scores(*scores)
        text = str(difference)
        both = {"difference": difference.difference, "interval": list(difference.interval)}
        result = {**result, "compared": found[1], "difference": both}
    if args.out:
        write_result(Path(args.out), {**result, "weights": trace_weights(args.models, scores[0].models)})
    if args.json:
        return print_json(result)
    for score, one in zip(scores, found, strict=True):
        print_lines(*(net.metadata.origin for net in score.models))
        names = " and ".join(net.spec.name for net in score.models)
        print_lines(f"{names} on {one['data']}, {one['views']}: {describe_map(one)}")
        if skipped := one.get("skipped"):
            print_lines(f"{skipped} of {skipped + score.pictures} pictures could not be decoded and were skipped")
        if args.per_class or one.get("coco"):
            print_classes(one)
    if text:
        print_lines(text)


def print_classes(score: Mapping[str, Any]) -> None:
    rows = [
        (one["name"], f"{one['objects']:,}", "" if one["ap"] is None else f"{one['ap']:.2f}")
        for one in score["classes"]
    ]
    print_table(("class", "objects", "AP %"), rows, right=("objects", "AP %"))
    if numbers := score.get("coco"):
        cells = [(name, "" if value is None else f"{value:.2f}") for name, value in numbers.items()]
        print_lines()
        print_table(("COCO", "%"), cells, right=("%",))
