"""From rows and a budget to jobs: the networks, recipes, images and seeds that will really be used. No torch here."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from resnets.errors import UserError, one_of
from resnets.paper.rows import Experiment, Row
from resnets.paper.tables import EXPERIMENTS
from resnets.reproduce.budgets import CLASSES, PAPER_BATCH, Budget, Scale
from resnets.spec import Spec
from resnets.training.recipe import RECIPES, Recipe, iterations
from resnets.zoo import spec_of

CIFAR_IMAGES, CIFAR_TESTED, CIFAR_SIDE = 50_000, 10_000, 32


@dataclass(frozen=True)
class Source:
    """The images of a job."""

    name: str
    side: int | None = None
    tested: int | None = None

    @property
    def images(self) -> int:
        """How many there are to train on."""
        return int(self.name.partition(":")[2] or CIFAR_IMAGES)

    @property
    def test_images(self) -> int:
        return self.tested or (self.images // 4 if ":" in self.name else CIFAR_TESTED)


@dataclass(frozen=True)
class Job:
    """A row at a budget."""

    row: Row
    budget: Budget
    spec: Spec
    recipe: Recipe
    source: Source
    seeds: tuple[int, ...]
    scaled: tuple[str, ...]

    @property
    def steps(self) -> int:
        return iterations(self.recipe.length, self.source.images - self.recipe.validation, self.recipe.batch)

    @property
    def side(self) -> int:
        return self.source.side or CIFAR_SIDE

    @property
    def limit(self) -> float:
        return self.budget.limit(self.source.name, self.spec.num_classes)


@dataclass(frozen=True)
class Plan:
    jobs: tuple[Job, ...]
    waiting: tuple[tuple[Row, str], ...]  # rows that cannot be run yet, and what they wait for


# --- which rows -------------------------------------------------------------------------------


def experiments_of(names: Sequence[str]) -> list[Experiment]:
    """The named experiments, each once; `all` are all."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise one_of("experiment", name, [*EXPERIMENTS, "all"])
    if not names:
        raise UserError(f"say what to reproduce: {', '.join(EXPERIMENTS)} or all; --list describes them.")
    return list(EXPERIMENTS.values()) if "all" in names else [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def rows_of(experiments: Iterable[Experiment], pattern: str | None = None, shard: str | None = None) -> list[Row]:
    """The rows of experiments, each once; of these the ones whose name fits a shell pattern, and of these a shard."""
    rows = list(dict.fromkeys(row for experiment in experiments for row in experiment.rows))
    if pattern is not None:
        matching = [row for row in rows if fnmatch.fnmatchcase(row.name, pattern)]
        if not matching:
            raise UserError(f"no row matches {pattern!r}; there are {', '.join(row.name for row in rows)}.")
        rows = matching
    if shard is None:
        return rows
    part, parts = _shard(shard)
    return rows[part - 1 :: parts]


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"a shard is written as 3/16, the third of sixteen, not {text!r}.")
    return int(match[1]), int(match[2])


# --- what a budget makes of a row -------------------------------------------------------------


def plan(rows: Iterable[Row], budget: Budget, seeds: int | None = None) -> Plan:
    """Jobs for the rows that can be run; `seeds` overrides how many runs each has."""
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds must be at least 1, not {seeds}.")
    jobs, waiting = [], []
    for row in rows:
        if row.data == "imagenet":  # weeks on eight devices, and no small form of it would say anything
            waiting.append((row, f"you: {_command(row)}"))
        else:
            jobs.append(job(row, budget, seeds))
    return Plan(tuple(jobs), tuple(waiting))


def _command(row: Row) -> str:
    """The command that trains a row."""
    changes = "".join(f" --{field.replace('_', '-')} {value}" for field, value in row.changes)
    return f"resnets train {row.network}{changes} --data {row.data}:DIR --recipe {row.recipe}"


def job(row: Row, budget: Budget, seeds: int | None = None) -> Job:
    paper = spec_of(row.network, **dict(row.changes), num_classes=CLASSES[row.data])
    scale = next(s for s in budget.scales if s.layers is None or paper.depth <= s.layers)
    source = Source(budget.data or row.data, scale.side, scale.tested)
    spec = _network(paper, scale)
    if budget.data:
        spec = dataclasses.replace(spec, num_classes=CLASSES["cifar10"])  # as procedural images have
    recipe = _recipe(row, scale, source, budget)
    count = seeds or scale.seeds or budget.seeds
    scaled = (*_differences(row, source), *_smaller(paper, spec), *_shorter(RECIPES[row.recipe], recipe))
    return Job(row, budget, spec, recipe, source, tuple(range(count)), scaled)


def _network(paper: Spec, scale: Scale) -> Spec:
    blocks = tuple(min(n, scale.units or n) for n in paper.blocks)
    return dataclasses.replace(paper, blocks=blocks, widths=tuple(w // scale.thinner for w in paper.widths))


def _recipe(row: Row, scale: Scale, source: Source, budget: Budget) -> Recipe:
    base = RECIPES[row.recipe]
    validation = row.validation * source.images // CIFAR_IMAGES
    if scale == Scale() and source.name == row.data:
        return dataclasses.replace(base, validation=validation)
    batch = (scale.batch or PAPER_BATCH) / PAPER_BATCH
    short = dataclasses.replace(
        base,
        name=f"{base.name}-{budget.name}",
        batch=round(base.batch * batch),
        lr=base.lr * batch,  # as steps of smaller batches are more, and noisier
        micro_batch=round(base.micro_batch * batch),
        pad=round(base.pad * (scale.side or CIFAR_SIDE) / CIFAR_SIDE),
        validation=validation,
    )
    if scale.iterations:
        short = dataclasses.replace(short, **_shortened(base, scale.iterations))
    return dataclasses.replace(short, **dict(scale.recipe))


def _shortened(base: Recipe, steps: int) -> dict[str, Any]:
    """The length, with warm-up and milestones at their shares of it; a warm-up has a step at least."""

    def at(span: str) -> int:
        whole = iterations(base.length, CIFAR_IMAGES, base.batch)
        share = iterations(span, CIFAR_IMAGES, base.batch) / whole
        return max(round(share * steps), 1 if share else 0)

    milestones = ",".join(f"{at(span)}it" for span in base.milestone_spans)
    return {"length": f"{steps}it", "warmup": f"{at(base.warmup)}it", "milestones": milestones}


# --- what a reader of a number must know of it ------------------------------------------------


def _differences(row: Row, source: Source) -> Iterable[str]:
    if source.name != row.data:
        yield f"{source.name} for {row.data}"
    if source.side:
        yield f"images {source.side}x{source.side}"
    if source.tested:
        yield f"{source.tested:,} test images"


def _smaller(paper: Spec, spec: Spec) -> Iterable[str]:
    if spec.depth != paper.depth:
        yield f"{spec.depth} of {paper.depth} layers"
    if spec.widths != paper.widths:
        yield f"widths {','.join(map(str, spec.widths))}"


def _shorter(theirs: Recipe, ours: Recipe) -> Iterable[str]:
    if ours.length != theirs.length:
        yield f"{ours.length} for {theirs.length}"
    for field in ("batch", "lr", "pad", "warmup", "milestones"):
        if (value := getattr(ours, field)) != getattr(theirs, field):
            yield f"{field} {value or 'none'}"
