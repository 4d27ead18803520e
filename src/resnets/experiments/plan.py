"""Make jobs from rows and a budget: the networks, recipes, images and seeds that will be used. No torch here."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from resnets.chain import Chain, NetworkSpec
from resnets.data.folder import IMAGENET_CLASSES, Folder, open_folder
from resnets.errors import UserError, one_of
from resnets.experiments.budgets import CLASSES, PAPER_BATCH, Budget, Scale
from resnets.other_systems import OTHERS
from resnets.papers.rows import Experiment, Row
from resnets.papers.tables import EXPERIMENTS, list_protocols
from resnets.recipe import RECIPES, Recipe, iterations, parse_init
from resnets.zoo import spec_of

CIFAR_IMAGES, CIFAR_TESTED, CIFAR_SIDE = 50_000, 10_000, 32
IMAGENET_IMAGES, IMAGENET_TESTED, IMAGENET_SIDE = 1_281_167, 50_000, 224


@dataclass(frozen=True)
class Source:
    """The images of a job."""

    name: str
    side: int | None = None
    tested: int | None = None
    folder: Folder | None = None  # of ImageNet, with the classes that are taken

    @property
    def images(self) -> int:
        """How many there are to train on."""
        return len(self.folder.train) if self.folder else int(self.name.partition(":")[2] or CIFAR_IMAGES)

    @property
    def test_images(self) -> int:
        if self.folder:
            return len(self.folder.test or ())
        return self.tested or (self.images // 4 if ":" in self.name else CIFAR_TESTED)


@dataclass(frozen=True)
class Job:
    """A row at a budget."""

    row: Row
    budget: Budget
    spec: NetworkSpec
    recipe: Recipe
    source: Source
    seeds: tuple[int, ...]
    scaled: tuple[str, ...]
    teacher: Job | None = None  # whose run it learns from
    begins: Job | None = None  # with whose weights it begins

    @property
    def before(self) -> tuple[Job, ...]:
        """What must have been trained before it, each once and alone: what these need is in the list too."""
        needed = [job for job in (self.teacher, self.begins) if job is not None]
        alone = [dataclasses.replace(job, teacher=None, begins=None) for job in needed]
        return tuple(dict.fromkeys([*(one for job in needed for one in job.before), *alone]))

    @property
    def own_side(self) -> int:
        """The side of the images that the network's authors train it on."""
        return spec_of(self.row.network).input_size

    @property
    def steps(self) -> int:
        return iterations(self.recipe.length, self.source.images - self.recipe.validation, self.recipe.batch)

    @property
    def side(self) -> int:
        return self.source.side or self.spec.input_size

    @property
    def pixels(self) -> float:
        """The mean number of pixels of an image in training, as a share of those at its largest."""
        if not self.recipe.sizes:
            return 1.0
        sides, starts = zip(*self.recipe.size_steps, strict=True)
        spans = (end - start for start, end in pairwise((*starts, 1.0)))
        return sum((side / self.side) ** 2 * span for side, span in zip(sides, spans, strict=True))

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that the tables have of a net for ImageNet."""
        return list_protocols(self.row)

    @property
    def limit(self) -> float:
        return self.budget.limit(self.source.name, self.spec.num_classes)


@dataclass(frozen=True)
class RowEstimate:
    """The runs of a row that are left, and the time and memory that they take together; a finished row has none."""

    job: Job
    seeds: tuple[int, ...]  # of the runs that are left
    scaled_besides: tuple[str, ...]  # what is scaled in this row and not in all
    fits: bool = True
    seconds: float = 0.0  # at the load that the machine has now
    cpu_seconds: float | None = None  # of all threads; None on other devices
    memory: int = 0  # bytes
    mode: str = ""
    busy: float = 1.0  # how many times as long a step takes as its CPU time explains
    advice: str = ""  # what would make it fit


@dataclass(frozen=True)
class Plan:
    """What `reproduce` will run, with estimates of time and memory."""

    budget: str
    rows: tuple[RowEstimate, ...]
    waiting: tuple[str, ...]  # names of rows on ImageNet, where it was not given
    scaled: tuple[str, ...]  # in all rows

    @property
    def todo(self) -> list[RowEstimate]:
        return [row for row in self.rows if row.seeds and row.fits]


# --- which rows -------------------------------------------------------------------------------


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """The named experiments, each once; `all` are all."""
    for name in names:
        if name == "detection":
            raise UserError(
                "detection has tables of its own: `resnets reproduce detection`, in Python "
                "resnets.experiments.detection.reproduce_detection."
            )
        if name not in EXPERIMENTS and name != "all":
            raise one_of("experiment", name, [*EXPERIMENTS, "all"])
    if not names:
        raise UserError(f"say what to reproduce: {', '.join(EXPERIMENTS)} or all; --list describes them.")
    return list(EXPERIMENTS.values()) if "all" in names else [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def choose_rows(experiments: Iterable[Experiment], pattern: str | None = None, shard: str | None = None) -> list[Row]:
    """The rows of experiments, each once; of these the ones whose name fits a shell pattern, and of these a shard."""
    rows = list(dict.fromkeys(row for experiment in experiments for row in experiment.rows))
    if pattern is not None:
        matching = [row for row in rows if fnmatch.fnmatchcase(row.name, pattern)]
        if not matching:
            raise UserError(f"no row matches {pattern!r}; there are {', '.join(row.name for row in rows)}.")
        rows = matching
    if shard is None:
        return rows
    part, parts = _parse_shard(shard)
    return rows[part - 1 :: parts]


def _parse_shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"a shard is written as 3/16, the third of sixteen, not {text!r}.")
    return int(match[1]), int(match[2])


# --- a row at a budget ------------------------------------------------------------------------


def open_imagenet(path: str) -> Folder:
    """ImageNet's training and test images. Their name in a run does not depend on the path."""
    folder = open_folder(path, imagenet=True)
    if folder.test is None:
        raise UserError(f"{path} must have the folders train and val, as `resnets data prepare imagenet` makes them.")
    return dataclasses.replace(folder, name="imagenet")


def make_jobs(
    rows: Iterable[Row], budget: Budget, seeds: int | None = None, imagenet: Folder | None = None
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """Jobs for the rows that can be run, and the names of those that wait for ImageNet; `seeds` overrides how many runs
    each has."""
    jobs, waiting = [], []
    for row in rows:
        if row.data == "imagenet" and imagenet is None:
            waiting.append(row.name)
        else:
            jobs.append(make_job(row, budget, seeds, imagenet))
    return tuple(jobs), tuple(waiting)


def make_job(row: Row, budget: Budget, seeds: int | None = None, imagenet: Folder | None = None) -> Job:
    paper = spec_of(row.network, **dict(row.changes), num_classes=CLASSES[row.data])
    before = {
        name: make_job(needed, budget, seeds, imagenet)
        for name, needed in (("teacher", row.teacher), ("begins", row.begins))
        if needed is not None
    }
    if row.data == "imagenet":
        assert imagenet is not None
        scale = budget.imagenet
        folder = _keep_classes(imagenet, scale.classes) if scale.classes else imagenet
        side = scale.side and round(scale.side * paper.input_size / IMAGENET_SIDE)
        source = Source(row.data, side, folder=folder)
        classes = folder.num_classes
    else:
        scale = next(s for s in budget.scales if s.layers is None or paper.depth <= s.layers)
        source = Source(budget.data or row.data, scale.side, scale.tested)
        classes = CLASSES["cifar10" if budget.data else row.data]  # procedural images have as many as CIFAR-10
    spec = dataclasses.replace(_scale_network(paper, scale, source.side), num_classes=classes)
    recipe = _scale_recipe(row, scale, source, budget)
    count = seeds or scale.seeds or budget.seeds
    scaled = (
        *_describe_data(row, source),
        *_describe_network(paper, spec),
        *_describe_recipe(RECIPES[row.recipe], recipe),
    )
    return Job(row, budget, spec, recipe, source, tuple(range(count)), scaled, **before)


@lru_cache  # one folder for all rows
def _keep_classes(folder: Folder, count: int) -> Folder:
    return folder.some_classes(count)


def _scale_network(paper: NetworkSpec, scale: Scale, side: int | None) -> NetworkSpec:
    """Fewer units and filters; fully connected layers for maps of images of `side`.

    Auxiliary heads are left out where such images leave too few pixels for them.
    """
    if isinstance(paper, Chain):
        thin = paper.thin(scale.thinner)
        try:
            return dataclasses.replace(thin, input_size=side or paper.input_size)
        except UserError:
            return dataclasses.replace(thin, input_size=side or paper.input_size, aux=False)
    blocks = tuple(min(n, scale.units or n) for n in paper.blocks)
    return dataclasses.replace(paper, blocks=blocks, widths=tuple(w // scale.thinner for w in paper.widths))


def _scale_recipe(row: Row, scale: Scale, source: Source, budget: Budget) -> Recipe:
    base = RECIPES[row.recipe]
    paper = dataclasses.replace(base, validation=row.validation * source.images // CIFAR_IMAGES)
    batch = (scale.batch or PAPER_BATCH) / PAPER_BATCH
    if row.network in OTHERS:  # of their own sizes, up to 1,600: none is larger than those of residual networks
        batch *= min(1.0, 2 * PAPER_BATCH / base.batch) if scale.batch else 1.0
    short = dataclasses.replace(
        paper,
        batch=round(base.batch * batch),
        lr=base.lr * batch,  # in proportion, as smaller batches are noisier
        micro_batch=round(base.micro_batch * batch),
    )
    if source.side and source.folder:
        short = dataclasses.replace(short, side=source.side)  # the sizes to crop from are in proportion
    elif scale.side:
        short = dataclasses.replace(short, pad=round(base.pad * scale.side / CIFAR_SIDE))
    kind, number = parse_init(base.init)
    if kind in ("gaussian", "uniform") and scale.thinner > 1:  # so that the fewer inputs of a layer sum up to as much
        short = dataclasses.replace(short, init=f"{kind}:{number * scale.thinner**0.5:.4g}")
    if scale.iterations:
        short = dataclasses.replace(short, **_shorten(base, scale.iterations))
    if row.network not in OTHERS:  # whose recipes have no warm-up
        short = dataclasses.replace(short, **dict(scale.recipe))
    return paper if short == paper else dataclasses.replace(short, name=f"{base.name}-{budget.name}")


def _shorten(base: Recipe, steps: int) -> dict[str, Any]:
    """The length, warm-up and milestones in proportion; a warm-up has at least one step."""

    def scale(span: str) -> int:
        whole = iterations(base.length, CIFAR_IMAGES, base.batch)
        share = iterations(span, CIFAR_IMAGES, base.batch) / whole
        return max(round(share * steps), 1 if share else 0)

    factors = [part.partition(":")[2] for part in base.milestones.split(",")]
    milestones = [f"{scale(span)}it" for span in base.milestone_spans]
    written = ",".join(f"{m}:{f}" if f else m for m, f in zip(milestones, factors, strict=False))
    short = {"length": f"{steps}it", "warmup": f"{scale(base.warmup)}it", "milestones": written}
    for field in ("momentum_ramp", "distill"):  # as 0.65@250ep
        number, _, span = getattr(base, field).partition("@")
        short |= {field: f"{number}@{scale(span)}it"} if span else {}
    return {**short, "aux_length": f"{scale(base.aux_length)}it"} if base.aux_length else short


# --- what was scaled --------------------------------------------------------------------------


def _describe_data(row: Row, source: Source) -> Iterable[str]:
    if source.name != row.data:
        yield f"{source.name} for {row.data}"
    if source.folder:
        yield from _describe_imagenet(source, spec_of(row.network).input_size)
    elif source.side:
        yield f"images {source.side}x{source.side}"
    if source.tested:
        yield f"{source.tested:,} test images"


def _describe_imagenet(source: Source, own: int) -> Iterable[str]:
    assert source.folder is not None
    if source.folder.num_classes != IMAGENET_CLASSES:
        yield f"{source.folder.num_classes} of {IMAGENET_CLASSES} classes"
    if source.images != IMAGENET_IMAGES:
        yield f"{source.images:,} of {IMAGENET_IMAGES:,} training images"
    if source.test_images != IMAGENET_TESTED:
        yield f"{source.test_images:,} of {IMAGENET_TESTED:,} test images"
    if source.side:
        yield f"crops of {source.side} for {own} (others in proportion)"


def _describe_network(paper: NetworkSpec, spec: NetworkSpec) -> Iterable[str]:
    if isinstance(paper, Chain) or isinstance(spec, Chain):
        yield from _describe_chain(paper, spec)
        return
    if spec.depth != paper.depth:
        yield f"{spec.depth} of {paper.depth} layers"
    if spec.widths != paper.widths:
        yield f"widths {','.join(map(str, spec.widths))}"


def _describe_chain(paper: NetworkSpec, spec: NetworkSpec) -> Iterable[str]:
    assert isinstance(paper, Chain)
    assert isinstance(spec, Chain)
    if spec.rows != paper.rows:
        divisor = next(n for n in range(2, 100) if paper.thin(n).rows == spec.rows)
        yield f"1/{divisor} of the filters"
    if spec.aux != paper.aux:
        yield "no auxiliary heads"


def _describe_recipe(paper: Recipe, ours: Recipe) -> Iterable[str]:
    if ours.length != paper.length:
        yield f"{ours.length} for {paper.length}"
    if ours.sizes:
        first, *later = ours.size_steps
        yield ", ".join([f"images {first[0]}x{first[0]}", *(f"{side}x{side} from {at:.0%} on" for side, at in later)])
    for field in ("batch", "lr", "pad", "warmup", "milestones", "init"):
        if (value := getattr(ours, field)) != getattr(paper, field):
            yield f"{field} {value or 'none'}"
