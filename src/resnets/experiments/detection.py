"""`reproduce detection`: v1's Tables 7, 8 and 9 at a budget. Rows without pictures or weights are planned and priced.

A price is the multiply-adds of a row, and hours by the speed of one small step on this machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.detect_options import METRICS
from resnets.detection.complexity import count_step, count_test
from resnets.detector_spec import DetectorSpec, detector_of
from resnets.errors import UserError
from resnets.experiments.options import ReproduceOptions
from resnets.papers.detection import BUDGETS, EXAMPLES, SWITCHES, TESTED, DetectionCell, DetectionRow, DetectionTable
from resnets.recipe import Recipe, iterations, recipe_of

NOT_RUN = "not run"
DIFFERENCES = "differences.json"  # beside the results of a budget
_CLASSES = {"coco": 80}
_WORDS = {  # --data of each kind of pictures, below the folder that --voc or --coco names
    "voc07+12": "voc:{voc}:2007/trainval+2012/trainval:2007/test",
    "voc07++12": "voc:{voc}:2007/trainval+2007/test+2012/trainval",
    "voc2012": "voc:{voc}:train:val@1000",
    "coco": "coco:{coco}/annotations/instances_train2014.json:{coco}/train2014:"
    "{coco}/annotations/instances_val2014.json:{coco}/val2014",
}
_ASPECT = 4 / 3  # of most pictures, for the price


@dataclass(frozen=True)
class RowPlan:
    """A row with its price, and the command that trains it."""

    row: DetectionRow
    steps: int
    cost: float  # multiply-adds of training and one test
    hours: float  # at the speed of this machine
    missing: str  # what it waits for; empty: it can run
    command: str


@dataclass(frozen=True)
class ComparedTable:
    title: str
    cells: list[list[str]]


@dataclass(frozen=True)
class DetectionReproduction:
    plan: tuple[RowPlan, ...]
    tables: tuple[ComparedTable, ...]


HEADER = (
    "row", "the paper, mAP@.5", "ours", "ahead of the row above", "the paper, mAP@[.5, .95]", "ours, COCO's"
)  # fmt: skip


def reproduce_detection(
    options: ReproduceOptions, say: Callable[[str], None] = lambda sentence: None
) -> DetectionReproduction:
    """Plan the rows of a budget, run those whose pictures and weights are here, and compare with the paper."""
    if options.budget not in BUDGETS:
        raise UserError(f"detection has the budgets {', '.join(BUDGETS)}, not {options.budget}.")
    tables = BUDGETS[options.budget]
    rows = list(dict.fromkeys(cell.row for table in tables for cell in table.cells if cell.row))
    speed = _measure_speed()
    plan = tuple(_plan(row, options, speed) for row in rows)
    if not options.dry_run:
        for one in plan:
            tests = sorted(
                {cell.test for table in tables for cell in table.cells if cell.row == one.row and not cell.server}
            )
            _run(one, tests, options, say)
        _write_differences(tables, options)
    return DetectionReproduction(plan, compare_tables(options))


# --- planning -----------------------------------------------------------------------------------


def describe_row(row: DetectionRow) -> tuple[DetectorSpec, Recipe]:
    recipe = recipe_of(row.recipe, **dict(row.changes))
    spec = detector_of(f"faster_rcnn_{row.network}", context=row.context, num_classes=_CLASSES.get(row.data, 20))
    return dataclasses.replace(spec, anchor_sizes=recipe.anchor_sides, pool_size=recipe.pool_size), recipe


def price_row(row: DetectionRow) -> tuple[int, float]:
    """The steps of a row, and the multiply-adds of its training and one test."""
    spec, recipe = describe_row(row)
    steps = iterations(recipe.length, EXAMPLES[row.data], recipe.batch)
    side = recipe.detect_sides[-1]
    size = side, min(round(side * _ASPECT), recipe.detect_longest)
    cost = float(steps * recipe.batch * count_step(spec, *size, recipe.roi_batch, recipe.freeze))
    return steps, cost + TESTED[row.data] * count_test(spec, *size)


def _plan(row: DetectionRow, options: ReproduceOptions, speed: float) -> RowPlan:
    steps, cost = price_row(row)
    missing = _find_missing(row, options)
    return RowPlan(row, steps, cost, cost / speed / 3600, missing, _write_command(row, options))


def _find_missing(row: DetectionRow, options: ReproduceOptions) -> str:
    needs = []
    if (options.coco if row.data == "coco" else options.voc) is None:
        needs.append("pictures (--coco DIR)" if row.data == "coco" else "pictures (--voc DIR)")
    if options.backbones is None or _find_weights(row, options) is None:
        needs.append(f"weights ({row.network} in --backbones DIR)")
    return " and ".join(needs)


def _find_weights(row: DetectionRow, options: ReproduceOptions) -> Path | None:
    folder = Path(options.backbones or ".")
    names = (f"{row.network}{ending}" for ending in (".safetensors", ".pth", ".ckpt"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _write_command(row: DetectionRow, options: ReproduceOptions) -> str:
    words = _WORDS[row.data].format(voc=options.voc or "VOC", coco=options.coco or "COCO")
    weights = _find_weights(row, options) or f"{row.network}.safetensors"
    changes = [f"--{name.replace('_', '-')} {value}" for name, value in row.changes]
    context = ["--context"] if row.context else []
    return " ".join(
        [
            f"resnets train faster_rcnn_{row.network} --data {words} --recipe {row.recipe} --weights {weights}",
            *context,
            *changes,
        ]
    )


_TIMED = 320, 427, 48  # height, width and regions of the step that is timed


def _measure_speed() -> float:
    """Multiply-adds a second of a training step: the faster of two after a first one."""
    import torch

    from resnets.detection.detector import Example, Sampling, build_detector
    from resnets.detection.proposals import Objects

    height, width, regions = _TIMED
    spec = dataclasses.replace(
        detector_of("faster_rcnn_resnet50", num_classes=20), anchor_sizes=(64, 128, 256), pool_size=7
    )
    net = build_detector(spec).prepare("auto", "fast")
    net.backbone.freeze_stages(1)
    net.sampling = Sampling(128, regions, 0.25)
    draw = torch.Generator().manual_seed(0)
    boxes, none = torch.tensor([[20.0, 20, 100, 100]]), torch.zeros(0, 4)
    image = torch.randn(3, height, width, generator=draw)
    example = Example(image, Objects(boxes, torch.tensor([0]), none, none), 0, "")
    times = []
    for _ in range(3):
        began = time.perf_counter()
        torch.autograd.backward(torch.stack(list(net([example]).values())).sum())
        times.append(time.perf_counter() - began)
    return count_step(spec, height, width, regions, 1) / min(times[1:])


# --- running ------------------------------------------------------------------------------------


def _result_path(row: DetectionRow, test: str, options: ReproduceOptions) -> Path:
    return _results_folder(options) / f"{_name_test(row, test)}.json"


def _results_folder(options: ReproduceOptions) -> Path:
    return Path(options.results) / "detection" / options.budget


def _score_path(name: str, options: ReproduceOptions) -> Path:
    """The ranked detections of a test: larger than what is published, so with the runs."""
    return Path(options.out) / "detection" / options.budget / f"{name}.safetensors"


def _name_test(row: DetectionRow, test: str) -> str:
    return f"{row.name}-{test}" if test else row.name


def _choose_metric(row: DetectionRow) -> str:
    """By which detectors are compared at an overlap of .5."""
    return "voc2007" if row.data == "voc07+12" else "voc2012"


def _run(plan: RowPlan, tests: list[str], options: ReproduceOptions, say: Callable[[str], None]) -> None:
    """Train a row, or resume it, and run the tests that have no result yet."""
    row = plan.row
    left = [test for test in tests if not _result_path(row, test, options).exists()]
    if plan.missing or not left:
        return
    from resnets.evaluation.detection import detect_all
    from resnets.evaluation.options import EvaluateOptions
    from resnets.evaluation.score_files import write_score
    from resnets.progress import Console
    from resnets.runs import provenance_to_publish
    from resnets.training.session import train

    say(f"{row.name}: training, {plan.steps:,} steps.")
    words = _WORDS[row.data].format(voc=options.voc, coco=options.coco)
    run = train(
        f"faster_rcnn_{row.network}", words, row.recipe, out=options.out, weights=str(_find_weights(row, options)),
        context=row.context, bad_boxes="clip", bad_images=options.bad_images, threads=options.threads, test=False,
        device=options.device, engine=options.engine, memory=options.memory, **dict(row.changes),
    )  # fmt: skip
    for test in left:
        say(f"{row.name}: testing{f' with {test}' if test else ''}.")
        asked = EvaluateOptions(
            bad_boxes="clip", bad_images=options.bad_images, threads=options.threads, **SWITCHES[test]
        )
        detected = detect_all([run], words, asked, Console(), say)
        scores = {metric: detected.score(metric).to_dict() for metric in METRICS}
        path, ranked = _result_path(row, test, options), _score_path(_name_test(row, test), options)
        make_folder_of(path)
        make_folder_of(ranked)
        write_score(ranked, detected.score(_choose_metric(row)))
        known = {"detector": row.name, "test": test, "budget": options.budget}
        result = {**known, "scores": scores, "run": run.config["run"]}
        write_atomically(path, (json.dumps({**result, **provenance_to_publish()}, indent=1) + "\n").encode())


# --- comparing ----------------------------------------------------------------------------------


def _pair_with_row_above(table: DetectionTable) -> dict[DetectionCell, tuple[str, str]]:
    """The name of each cell's test and of that above it, where both are tested on the same pictures."""
    return {
        one: (_name_test(one.row, one.test), _name_test(above.row, above.test))
        for above, one in itertools.pairwise(table.cells)
        if one.row and above.row and one.row.data == above.row.data
    }


def _write_differences(tables: tuple[DetectionTable, ...], options: ReproduceOptions) -> None:
    """Add the differences between rows whose ranked detections are here to those that are known."""
    known = _read_differences(options)
    before = len(known)
    for table in tables:
        for pair in _pair_with_row_above(table).values():
            name, scores = " - ".join(pair), [_score_path(test, options) for test in pair]
            if name in known or not all(path.exists() for path in scores):
                continue
            from resnets.detection.score import compare_scores
            from resnets.evaluation.score_files import read_score

            found = compare_scores(*map(read_score, scores))
            known[name] = {"difference": found.difference, "interval": list(found.interval)}
    if len(known) > before:
        from resnets.runs import provenance_to_publish

        result = {"budget": options.budget, "differences": known, **provenance_to_publish()}
        path = _results_folder(options) / DIFFERENCES
        write_atomically(path, (json.dumps(result, indent=1) + "\n").encode())


def _read_differences(options: ReproduceOptions) -> dict[str, Any]:
    from resnets import records

    path = _results_folder(options) / DIFFERENCES
    found = {"difference": records.NUMBER, "interval": (records.NUMBER,) * 2}
    return records.Record({"differences": records.Named(found)}).read(path)["differences"] if path.exists() else {}


def compare_tables(options: ReproduceOptions) -> tuple[ComparedTable, ...]:
    """The tables of a budget with what has been run so far."""
    differences = _read_differences(options)
    return tuple(_compare(table, differences, options) for table in BUDGETS[options.budget])


def _compare(table: DetectionTable, differences: dict[str, Any], options: ReproduceOptions) -> ComparedTable:
    ahead = {one: differences.get(" - ".join(pair)) for one, pair in _pair_with_row_above(table).items()}
    title = f"{table.where}: {table.title}. Budget {options.budget}."
    return ComparedTable(title, [_compare_cell(cell, ahead.get(cell), options) for cell in table.cells])


def _compare_cell(cell: DetectionCell, ahead: dict[str, Any] | None, options: ReproduceOptions) -> list[str]:
    theirs = ["" if value is None else f"{value:.1f}" for value in (cell.at_50, cell.coco)]
    ours = [NOT_RUN, NOT_RUN if cell.coco is not None else ""]
    if cell.server:
        ours = ["not public", "not public" if cell.coco is not None else ""]
    elif cell.row is not None and (result := read_result(_result_path(cell.row, cell.test, options))) is not None:
        at_50 = result["scores"][_choose_metric(cell.row)]
        low, high = at_50["interval"]
        ours = [f"{at_50['map']:.1f} ({low:.1f} to {high:.1f})", f"{result['scores']['coco']['map']:.1f}"]
    by = "" if ahead is None else "{:+.1f} ({:+.1f} to {:+.1f})".format(ahead["difference"], *ahead["interval"])
    return [cell.label, theirs[0], ours[0], by, theirs[1], ours[1]]


def read_result(path: Path) -> dict[str, Any] | None:
    """A result that `_run` wrote; None if there is none yet."""
    from resnets import records

    if not path.exists():
        return None
    score = {"map": records.PERCENT, "interval": (records.PERCENT,) * 2}
    return records.Record({"detector": records.TEXT, "scores": records.Named(score)}).read(path)
