"""What `train`, `eval` and `predict` print of detectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resnets.text import print_lines, print_table

if TYPE_CHECKING:
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
