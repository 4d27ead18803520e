"""Classification as a task: images and labels, cross-entropy, error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.analysis.propagation import summarize_signal
from resnets.chain import Chain, NetworkSpec
from resnets.counter_rng import order
from resnets.data.batches import Batches, DatasetBatches, FileBatches, MemoryBatches, TrainingSplit, split_training
from resnets.data.contrast import is_cached
from resnets.data.datasets import Datasets
from resnets.data.folder import Folder
from resnets.data.images import SPLIT_SEED, Images
from resnets.engine.threads import hold
from resnets.errors import UserError
from resnets.evaluation.averages import Scores, average_mirrored, average_shifted, require_room
from resnets.evaluation.precise_bn import precise_bn
from resnets.evaluation.score import Score
from resnets.nn import Network, ResNet, build, require_units
from resnets.nn.initialization import initialize_by
from resnets.nn.whitening import whiten
from resnets.recipe import Recipe
from resnets.runs import ModuleKey
from resnets.spec import Spec
from resnets.training.distributed import Workers
from resnets.training.losses import Loss
from resnets.training.schedule import Schedule
from resnets.training.task import Setup, Task
from resnets.weights.networks import save_weights


class Teacher(NamedTuple):
    """A trained network to learn from, and the hash of its file."""

    net: nn.Module
    digest: str


_WATCHED = 32  # images on which the signal is measured


class Classification(Task):
    """A network that gives each image a class."""

    kind = "classification"
    numbers = {"loss": 1.0, "error": 100.0}  # noqa: RUF012

    def __init__(
        self,
        network: NetworkSpec | ModuleKey,
        data: Images | Folder | Datasets,
        *,
        net: nn.Module | None = None,
        weights: str = "",
        teacher: Teacher | None = None,
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        """`net` is the network to begin with, by default a new one; `reading` are options of `FileBatches`."""
        self.network, self.images, self.net, self.weights = network, data, net, weights
        self.data, self.digest, self.reading = data.name, data.digest, dict(reading or {})
        self.teacher_net = teacher.net if teacher else None
        self.teacher = teacher.digest if teacher else ""
        self._splits: dict[tuple[int, str], TrainingSplit] = {}
        if not isinstance(network, ModuleKey) and network.num_classes < data.num_classes:
            raise UserError(f"{data.name} has {data.num_classes} classes and the network only {network.num_classes}.")

    def count_examples(self, recipe: Recipe) -> int:
        return self._split(recipe).examples

    def image_side(self, recipe: Recipe) -> int | None:
        if isinstance(self.images, Images):
            return max(self.images.train_images.shape[2:])
        return self.images.side if isinstance(self.images, Datasets) else self._side(recipe)

    def _side(self, recipe: Recipe) -> int:
        """What the network sees of images in files."""
        if isinstance(self.network, Spec | Chain):
            return recipe.side or self.network.input_size
        if not recipe.side:
            raise UserError(f"how large images a {self.network.name} sees is unknown: give side, as side=224.")
        return recipe.side

    def statistics(self, recipe: Recipe) -> str:
        return self._split(recipe).statistics

    def list_notices(self, recipe: Recipe) -> list[str]:
        if not isinstance(self.images, Images):
            return []
        if is_cached(self.images, recipe.normalize, self.images.split(recipe.validation, SPLIT_SEED)[0]):
            return []
        return [f"computing the whitening of {self.data}, once; for 32x32 images that takes about a minute."]

    def _split(self, recipe: Recipe) -> TrainingSplit:
        key = recipe.validation, recipe.normalize
        if key not in self._splits:
            self._splits[key] = split_training(self.images, recipe)
        return self._splits[key]

    def open(self, setup: Setup) -> None:
        self.recipe, self.seed = setup.recipe, setup.seed
        self.feed = self._batches(setup)
        self.schedule = Schedule(setup.recipe, self.feed.stream.n)
        self.splits = [split for split, count in self.feed.counts.items() if count]
        self.step = 0
        if isinstance(self.images, Images):
            require_room(self.recipe.shift, min(self.images.train_images.shape[2:]))
        else:
            require_room(self.recipe.shift, self.image_side(self.recipe))
        if self.teacher_net is not None:
            self.teacher_net = self.teacher_net.to(setup.device).eval().requires_grad_(False)
        self.criterion = Loss(setup.recipe, self.schedule, getattr(self.network, "heads", 0), self.teacher_net)

    def _batches(self, setup: Setup) -> Batches:
        where = setup.recipe, setup.seed, setup.device, setup.share
        if isinstance(self.images, Images):
            return MemoryBatches(self.images, *where)
        if isinstance(self.images, Datasets):
            return DatasetBatches(self.images, *where)
        # A part that fits in training also fits in testing.
        return FileBatches(self.images, *where, side=self._side(setup.recipe), at_once=setup.largest, **self.reading)

    def close(self) -> None:
        if isinstance(self.feed, FileBatches):
            self.feed.close()

    def build(self, seed: int) -> nn.Module:
        if self.net is not None:
            return self.net
        assert isinstance(self.network, Spec | Chain)
        net = build(self.network, seed=seed)
        if self.recipe.init:
            images = next(self.feed.first_images()) if self.recipe.init == "lsuv" else None
            hold()
            initialize_by(net, self.recipe.init, torch.Generator().manual_seed(seed), images)
        if self.recipe.whiten:
            whiten(require_units(net, "whiten computes filters for").stem.conv, self.feed.first_images())
        return net

    def frozen(self, net: nn.Module, recipe: Recipe) -> list[nn.Module]:
        if recipe.freeze and isinstance(net, ResNet):
            return freeze_stages(net, recipe.freeze)
        return super().frozen(net, recipe)

    # --- a step -------------------------------------------------------------------------------

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        if self.recipe.normalize == "gcn-zca":
            hold()  # its product would be rounded by the number of threads
        self.step = step
        images, labels = self.feed.batch(step, self.schedule.size(step))
        return self._lay_out(images), labels

    def _lay_out(self, x: Tensor) -> Tensor:
        layout = torch.channels_last if self.recipe.channels_last and x.dim() == 4 else torch.contiguous_format
        return x.contiguous(memory_format=layout)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        images, labels = batch
        loss, out = self.criterion(model, images, labels, self.step)
        return loss, {"error": (out.detach().argmax(1) != labels).float().mean()}

    # --- scores -------------------------------------------------------------------------------

    def score(self, model: nn.Module, split: str, workers: Workers) -> dict[str, Any]:
        """Each process tests its share, one view of each image; the network is left in the mode it came in.

        With `mirror` in the recipe also the mean of the scores of each image and its mirror image, as `mirrored`. With
        `shift` also the mean of these and those of the moved image, as `shifted`.
        """
        mode = model.training
        sums = {views: [0.0, 0.0, 0.0] for views in self._list_views()}  # images, wrong ones, loss
        model.eval()
        with torch.no_grad():
            for x, labels in self.feed.test_batches(split, workers.share(self.feed.counts[split])):
                for views, out in self._score_views(partial(self._run, model), x).items():
                    _add(sums[views], out, labels)
        model.train(mode)
        scores = {views: _score(workers, *found) for views, found in sums.items()}
        return {**scores.pop("one"), **scores}

    def _list_views(self) -> list[str]:
        return ["one", *["mirrored"] * self.recipe.mirror, *["shifted"] * bool(self.recipe.shift)]

    def _score_views(self, scores: Scores, x: Tensor) -> dict[str, Tensor]:
        """The scores of one view of each image, and their means over more."""
        best = scores(x)
        found = {"one": best}
        if self.recipe.mirror:
            best = found["mirrored"] = (best + scores(x.flip(-1))) / 2
        if self.recipe.shift:
            several = partial(average_mirrored, scores) if self.recipe.mirror else scores
            found["shifted"] = (best + average_shifted(several, x, self.recipe.shift)) / 2
        return found

    def _run(self, model: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = model(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x)
        return out.float()

    def logged(self, score: Mapping[str, Any]) -> dict[str, float]:
        return {name: score[name] for name in ("loss", "error")}

    def finish(self, net: nn.Module) -> None:
        """Precise BN, if the recipe asks for it: on the first images in order, without augmentation."""
        count, size = min(self.recipe.precise_bn, self.feed.stream.n), self.recipe.batch
        if count:
            precise_bn(net, self.feed.plain(np.arange(count - count % size or count), size))

    def measure_signal(self, net: nn.Module) -> dict[str, Any]:
        """How signals travel through the network now, on training images without augmentation."""
        if not isinstance(net, ResNet):
            return super().measure_signal(net)
        (x,) = self.feed.plain(order(self.feed.stream.n, 0, 0)[:_WATCHED], _WATCHED)
        return summarize_signal(net, self._lay_out(x))

    # --- weights ------------------------------------------------------------------------------

    def header(self) -> dict[str, str]:
        if isinstance(self.images, Datasets):
            return {"classes": json.dumps(self.images.classes)} if self.images.classes else {}
        seen: dict[str, Any] = {"normalize": self.recipe.normalize, "mean": self.images.mean, "std": self.images.std}
        if self.recipe.normalize != "channel" and self.recipe.validation:
            seen["held_out"] = self.recipe.validation
        preprocessing = {**seen, **self.feed.preprocessing}
        return {"classes": json.dumps(self.images.classes), "preprocessing": json.dumps(preprocessing)}

    def save(self, net: nn.Module, path: Path, header: Mapping[str, str]) -> None:
        if not isinstance(self.network, ModuleKey) and isinstance(net, Network):
            normalize = getattr(self.feed, "normalize", None)  # data sets of the user bring images that are ready
            save_weights(net, path, metadata=header, arrays=getattr(normalize, "arrays", {}))
        else:
            super().save(net, path, header)


def _add(sums: list[float], out: Tensor, labels: Tensor) -> None:
    """Count some images, the wrong ones among them, and their loss."""
    sums[0] += len(labels)
    sums[1] += int((out.argmax(1) != labels).sum())
    sums[2] += float(functional.cross_entropy(out, labels, reduction="sum"))


def _score(workers: Workers, images: float, wrong: float, loss: float) -> dict[str, Any]:
    """The score over all processes."""
    mean = loss / max(images, 1)
    total, errors, loss = workers.total(images, wrong, mean * images)
    return Score(round(total), round(errors), loss / max(total, 1)).to_dict()


def freeze_stages(net: ResNet, stages: int) -> list[nn.Module]:
    """The stem and the first stages, whose weights and statistics stay unchanged."""
    if stages > len(net.stages):
        raise UserError(f"{net.spec.name} has {len(net.stages)} stages, so freeze cannot be {stages}.")
    units = [unit for stage in net.stages[:stages] for unit in stage]
    modules: list[nn.Module] = [net.stem, *units]
    for module in modules:
        module.requires_grad_(False)
    return modules
