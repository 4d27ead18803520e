"""The tables of README and docs, made from `results/`: `python -m tools.tables` writes them.

The tables of a page are between `<!-- results: NAME -->` and `<!-- end -->`. A table that several pages have is written
with links from the root of the checkout; `fill_page` turns these into links from the page.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from resnets import records
from resnets.atomic import write_atomically
from resnets.chain import parse_network
from resnets.differences import label_groups
from resnets.errors import UserError
from resnets.experiments import detection
from resnets.experiments.options import ReproduceOptions
from resnets.papers.numbers import quote_paper
from resnets.recipe import LATER, RECIPES
from resnets.runs import Summary
from resnets.text import print_lines, say
from tools.tables import claims, depth, paper_runs, performance, reliability, reproduced, scale
from tools.tables.errors import write_interval, write_runs
from tools.tables.records import DETECTED, TEST, TRANSFER

_PLACE = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LINK = re.compile(r'(\]\(|src="|srcset=")((?:docs|results)/[^)"]+)')


def write_cifar(results: Path) -> str:
    """Every collected training: our errors, those of several views where they were measured, and the papers'."""
    header = ["network", "data", "recipe", "test error, ours", "with mirror images", "also moved", "the papers'"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for path in sorted((results / "cifar").glob("*.json")):
        groups = records.check_trainings(records.load(path), path)
        for result, variant in zip(groups, label_groups(groups), strict=True):
            tests = [run["result"]["test"] for run in result["runs"]]
            spec, data = parse_network(result["network"]), result["data"]["name"]
            cells = [
                spec.name + variant,
                data,
                _write_recipe(result["recipe"]) if not variant else f"`{result['recipe']['name']}`",
                f"[{write_runs(tests)}](results/cifar/{path.name})",
                *(_write_views(tests, views) for views in ("mirrored", "shifted")),
            ]
            lines.append(f"| {' | '.join(cells)} | {quote_paper(spec, data) or '-'} |")
    return "\n".join(lines)


def _write_views(tests: list[dict[str, Any]], views: str) -> str:
    found = [test[views] for test in tests if test.get(views)]
    return write_runs(found) if len(found) == len(tests) else "-"


def _write_recipe(recipe: dict[str, Any]) -> str:
    """The name of a recipe, and the fields in which the recipe of this name has changed since the training."""
    used = {**LATER, **recipe}
    now = dataclasses.asdict(RECIPES[used["name"]]) if used["name"] in RECIPES else used
    changed = ", ".join(f"{field} {used[field]}" for field in now if used[field] != now[field])
    return f"`{used['name']}`" + (f" with {changed}" if changed else "")


def write_imagenet(results: Path) -> str:
    """Every test by a protocol of the papers: top-1 and top-5 errors, with their intervals."""
    lines = ["| network | data | views | top-1 error | top-5 error |", "|---|---|---|---|---|"]
    for path in sorted((results / "imagenet").glob("*.json")):
        result = TEST.read(path)
        cells = [write_interval(score) for score in (result, result["top5"])]
        data = f"{Path(result['data']).name}, {result['images']} pictures"
        link = f"[{result['network']['name']}](../results/imagenet/{path.name})"
        lines.append(f"| {link} | {data} | {result['views']} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def write_detectors(results: Path) -> str:
    """Every test of a detector: mean average precision with its interval, and the precision of each class."""
    lines = ["| detector | data | views, metric | mAP | classes |", "|---|---|---|---|---|"]
    found = sorted((results / "detection").glob("*.json"))
    for path in found:
        result = DETECTED.read(path)
        name = f"[{result['network']['name']}](../results/detection/{path.name})"
        form, folder, *lists = result["data"].split(":")
        data = f"{form} {Path(folder).name} {lists[-1] if lists else ''}".strip() + f", {result['images']} pictures"
        low, high = result["interval"]
        classes = [f"{one['name']} {one['ap']:.2f} %" for one in result["classes"] if one["ap"] is not None]
        cells = [
            name,
            data,
            f"{result['views']}, {result['metric']}",
            f"{result['map']:.2f} % ({low:.1f} to {high:.1f})",
        ]
        lines.append(f"| {' | '.join(cells)} | {', '.join(classes)} |")
    return "\n".join(lines) if found else "Not measured yet: `make detect-demo` measures it."


def write_detection_tables(results: Path) -> str:
    """v1's tables of detection at the budget `day`: the paper's numbers, ours, and each row against the one above."""
    parts = []
    for table in detection.compare_tables(ReproduceOptions(budget="day", results=str(results))):
        lines = [detection.HEADER, ("---",) * len(detection.HEADER), *table.cells]
        parts += [table.title, "\n".join(f"| {' | '.join(cells)} |" for cells in lines)]
    return "\n\n".join(["", *parts, ""]).strip("\n")


def write_transfer(results: Path) -> str:
    """Every comparison of pretrained weights with new ones: errors by way, and the gain of the weights over each."""
    lines = ["| network | images | started from | test error | behind the weights by |", "|---|---|---|---|---|"]
    found = sorted((results / "transfer").glob("*.json"))
    for path in found:
        result = TRANSFER.read(path)
        link = f"[{result['network']['name']}](../results/transfer/{path.name})"
        images = f"{result['data']['name']}, {result['data']['training_images']:,} in {result['steps']} steps"
        for way, errors in result["errors"].items():
            gain = result["gains"].get(way)
            start = result["weights"]["name"] if gain is None else way
            behind = f"{gain['mean']:.2f} +- {gain['bound_95']:.2f} points" if gain else "-"
            lines.append(f"| {link} | {images} | {start} | {Summary(tuple(errors))} | {behind} |")
    return "\n".join(lines) if found else "Not measured yet: `python -m benchmarks.transfer` measures it."


TABLES: dict[str, Callable[[Path], str]] = {
    "cifar": write_cifar,
    "imagenet": write_imagenet,
    "detectors": write_detectors,
    "detection-tables": write_detection_tables,
    "transfer": write_transfer,
    "cifar-paper": paper_runs.write_paper_runs,
    **reproduced.TABLES,
    **performance.TABLES,
    **reliability.TABLES,
    **claims.TABLES,
    **scale.TABLES,
}


def fill_page(page: str, results: Path, folder: str = "") -> str:
    """Replace the tables of a page; `folder` is where the page lies, from the root of the checkout."""

    def write(place: re.Match[str]) -> str:
        table = _LINK.sub(lambda link: link[1] + posixpath.relpath(link[2], folder or "."), TABLES[place[2]](results))
        return f"{place[1]}{table}\n{place[3]}"

    return _PLACE.sub(write, page)


def list_pages(root: Path) -> dict[Path, str]:
    """The pages of a checkout that may have tables, and the folder of each, from the root."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {page: page.parent.relative_to(root).as_posix() for page in pages}


def fill_pages(root: Path) -> None:
    """Update the tables and pictures of a checkout."""
    for path, folder in list_pages(root).items():
        page = path.read_text(encoding="utf-8")
        if (new := fill_page(page, root / "results", folder)) != page:
            write_atomically(path, new.encode("utf-8", "backslashreplace"))  # names of files may be no UTF-8
            print_lines(f"{path.relative_to(root)}: tables updated")
    depth.draw(root / "results")
    claims.draw(root / "results")
    reproduced.draw(root / "results")
    paper_runs.draw(root / "results")


def main(argv: Sequence[str]) -> int:
    try:
        fill_pages(Path(argv[0]) if argv else Path.cwd())
    except UserError as error:
        say(str(error))
        return 2
    return 0
