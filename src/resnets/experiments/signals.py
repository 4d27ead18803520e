"""`reproduce signals`: how signals travel through every unit of the papers, for the page's unit explorer.

A file for each depth and form of F, of new weights, and one for each trained row whose run is still there. Numbers have
four digits, and of long networks some maps are left out: the first and the last map of each size never are.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets import records
from resnets.analysis.options import AnalyzeOptions
from resnets.errors import UserError
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.plan import Job, make_jobs
from resnets.experiments.results import RowFile, write_results
from resnets.papers.tables import EXPERIMENTS
from resnets.papers.variants import DEEPEST, Variant, list_groups, list_variants, variant_of
from resnets.runs import Run, RunKey, provenance_to_publish

if TYPE_CHECKING:
    from resnets.analysis.propagation import Propagation

DATA = "cifar10"
IMAGES, IMAGES_DEEPEST = 16, 8  # of a batch
POINTS = 60  # of a curve, about
DIGITS = 4
SEED = 0


@dataclass(frozen=True)
class SignalReproduction:
    written: tuple[Path, ...]  # with dry_run those that would be
    kept: tuple[Path, ...]  # that were there already


def reproduce_signals(
    options: ReproduceOptions, show: Callable[[str], object] = lambda line: None
) -> SignalReproduction:
    """Write `analysis/units/110-basic.json` and the like below the results, and `analysis/trained/BUDGET/ROW.json` of
    the rows of the budget whose runs are in `options.out`. Files that are complete are kept."""
    if options.shard is not None or options.seeds is not None:
        raise UserError("signals are analysed in one go and with one seed; leave out --shard and --seeds.")
    written, kept = [], []
    folder = Path(options.results) / "analysis"
    for layers, kernels in list_groups():
        path, variants = folder / "units" / f"{layers}-{kernels}.json", list_variants(layers, kernels)
        if not _is_chosen(path, options):
            continue
        if _holds(path, variants):
            kept.append(path)
            continue
        written.append(path)
        if not options.dry_run:
            show(f"{path}: {len(variants)} networks")
            write_results(path, _measure_group(variants, options))
    for job, variant, run in _find_trained(options):
        path = folder / "trained" / options.budget / f"{job.row.name}.json"
        if not _is_chosen(path, options):
            continue
        if _holds(path, [variant]):
            kept.append(path)
            continue
        written.append(path)
        if not options.dry_run:
            show(f"{path}: {run.path}")
            write_results(path, _measure_trained(job, variant, run, options))
    return SignalReproduction(tuple(written), tuple(kept))


def _is_chosen(path: Path, options: ReproduceOptions) -> bool:
    return options.rows is None or fnmatch.fnmatchcase(path.stem, options.rows)


def _holds(path: Path, variants: Sequence[Variant]) -> bool:
    """Whether a file has these variants and no others."""
    if not path.exists():
        return False
    found = records.SIGNALS.read(path)
    there = [Variant(one["shortcut"], one["order"], found["kernels"], found["layers"]) for one in found["signals"]]
    return there == list(variants)


def _measure_group(variants: Sequence[Variant], options: ReproduceOptions) -> dict[str, Any]:
    """New weights of every variant, all on the same images."""
    from resnets.analysis.analyze import measure  # imports torch
    from resnets.data import open_labelled
    from resnets.nn import build

    began = provenance_to_publish()
    images = open_labelled(DATA, options.data_dir)
    chosen = _choose_options(variants[0], options)
    found = [measure(build(variant.spec, seed=SEED), images, chosen) for variant in variants]
    return _describe(DATA, variants, found, began)


def _find_trained(options: ReproduceOptions) -> list[tuple[Job, Variant, Run]]:
    """The rows of the budget that are variants, with the run of their first seed that left weights."""
    rows = {row: variant for e in EXPERIMENTS.values() for row in e.rows if (variant := variant_of(row))}
    jobs, _ = make_jobs(list(rows), BUDGETS[options.budget], None, None)
    found = []
    for job in jobs:
        file = RowFile(Path(options.results), job)
        result = file.read() or {"runs": []}
        runs = [
            Run(Path(options.out) / RunKey.from_dict({**result, "seed": run["seed"]}).slug) for run in result["runs"]
        ]
        if there := [run for run in runs if run.weights.exists()]:
            found.append((job, rows[job.row], there[0]))
    return found


def _measure_trained(job: Job, variant: Variant, run: Run, options: ReproduceOptions) -> dict[str, Any]:
    """On images as the row was tested with."""
    from resnets.analysis.analyze import measure  # imports torch
    from resnets.experiments.running import Runner
    from resnets.nn import require_units
    from resnets.weights.models import open_model

    began = provenance_to_publish()
    images = Runner(options, quiet=True).load(job.source)
    found = measure(
        require_units(open_model(run), "signals are measured along"), images, _choose_options(variant, options)
    )
    about = {"row": job.row.name, "budget": job.budget.name, "trained_with_seed": run.identity.seed}
    return {**about, "scaled": list(job.scaled), **_describe(images.name, [variant], [found], began)}


def _choose_options(variant: Variant, options: ReproduceOptions) -> AnalyzeOptions:
    batch = IMAGES_DEEPEST if variant.layers == DEEPEST else IMAGES
    return AnalyzeOptions(batch=batch, seed=SEED, device=options.device)


# --- few numbers of an analysis ---------------------------------------------------------------


def _describe(
    data: str, variants: Sequence[Variant], found: Sequence[Propagation], began: dict[str, Any]
) -> dict[str, Any]:
    first = found[0]
    at = choose_maps(first.spans)
    return {
        "layers": variants[0].layers,
        "kernels": variants[0].kernels,
        "data": data,
        "images": first.images,
        "seed": SEED,
        "statistics": first.statistics,
        "spans": [list(span) for span in first.spans],
        "at": at,
        "signals": [
            {"shortcut": variant.shortcut, "order": variant.order, **summarize(one, at)}
            for variant, one in zip(variants, found, strict=True)
        ],
        "provenance": began,
    }


def choose_maps(spans: Sequence[tuple[int, int]]) -> list[int]:
    """About `POINTS` of the maps: every k-th of each size, and the last of it."""
    every = -(-(spans[-1][1] + 1) // POINTS)
    return [i for first, last in spans for i in sorted({*range(first, last + 1, every), last})]


def summarize(found: Propagation, at: Sequence[int]) -> dict[str, Any]:
    """Curves along the maps `at`, and for the first map of each size what equations (4), (7) and (8) say of it."""
    starts = [first for first, _ in found.spans]
    return {
        "rms": _pick(found.rms, at),
        "gradient": _pick(found.gradient, at),
        "product": _pick(found.product, at),
        "predicted": _pick(found.predicted_product, starts),
        "missed": _pick(found.missed, starts),
        "cosine": _pick(found.cosine, starts),
    }


def _pick(values: Sequence[float | None], at: Sequence[int]) -> list[float | None]:
    return [None if (value := values[i]) is None else float(f"{value:.{DIGITS}g}") for i in at]
