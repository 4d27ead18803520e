"""A task is what the loop trains: it gives batches, a loss and scores. The loop needs nothing else of it.

Classification is one task (`resnets.training.classification`). Another is a subclass of `Task`, which `resnets.train`
takes in place of a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from resnets.engine import prepare
from resnets.errors import UserError
from resnets.nn import ResNet
from resnets.recipe import Recipe
from resnets.runs import NetworkKey
from resnets.training.distributed import Workers
from resnets.training.optimizers import decay_groups
from resnets.weights.files import write


@dataclass(frozen=True)
class Setup:
    """Where and how a task is trained: the argument of `Task.open`."""

    recipe: Recipe
    seed: int
    device: torch.device
    share: slice  # this process's examples of each batch
    largest: int  # examples that pass through the network together


class Task(ABC):
    """Batches, a loss and scores.

    A batch must follow from seed and step alone; then a run that is stopped and resumed ends with the same bytes.
    docs/training.md describes the methods that a subclass has.

    >>> sorted(resnets.Task.__abstractmethods__)
    ['batch', 'build', 'count_examples', 'loss']
    """

    kind: str  # of tasks, for the name of the run
    network: NetworkKey  # what is trained, for the name of the run
    data: str  # its name
    digest: str  # its hash
    teacher: str = ""  # the hash of the weights of a teacher, if it has one
    weights: str = ""  # the hash of the weights to begin with, unless `network` says it
    splits: Collection[str] = ()  # to score; known after `open`. `test` is scored at the end, others each epoch

    numbers: Mapping[str, float] = {"loss": 1.0}
    """The numbers of a step, `loss` first. Their means are logged, multiplied by these factors."""

    @abstractmethod
    def count_examples(self, recipe: Recipe) -> int:
        """How many training examples an epoch has."""

    def statistics(self, recipe: Recipe) -> str:
        """The hash of what must stay the same when a run is resumed, such as the mean of the pixels."""
        return ""

    def open(self, setup: Setup) -> None:  # noqa: B027
        """Get ready to give batches. `close` ends what this starts."""

    def close(self) -> None:  # noqa: B027
        pass

    def list_notices(self, recipe: Recipe) -> list[str]:
        """Sentences about long work before the first step."""
        return []

    @abstractmethod
    def build(self, seed: int) -> nn.Module:
        """The network as it is before the first step."""

    @abstractmethod
    def batch(self, step: int) -> Any:
        """This process's share of the batch of a step, on its device."""

    def split(self, batch: Any, sizes: Sequence[int]) -> list[Any]:
        """The batch in parts of these sizes. See `split_batch` for what it may be made of."""
        return split_batch(batch, sizes)

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The mean loss of a part of a batch, and the other `numbers`, without gradients."""

    def score(self, model: nn.Module, split: str, workers: Workers) -> dict[str, Any]:
        """How good the network is on a split, over all processes. Called in each of them."""
        raise NotImplementedError

    def logged(self, score: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a score that are logged."""
        return {name: value for name, value in score.items() if isinstance(value, (int, float))}

    def groups(self, net: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        """Parameter groups for the optimizer; `rate` is the learning rate of a group, which the schedule scales."""
        return decay_groups(net, recipe)

    def prepare(self, net: nn.Module, engine: str, memory: str) -> nn.Module:
        """The network as the engine runs it in training."""
        return prepare(net, engine=engine, memory=memory) if isinstance(net, ResNet) else net

    def choose_memory(self, recipe: Recipe, device: torch.device) -> str | None:
        """The memory mode that `auto` means; None: the loop estimates residual networks, and others are `fast`."""
        return None

    def notices(self, net: nn.Module) -> list[str]:
        """Sentences about the training that a user should read before the first step."""
        return []

    def image_side(self, recipe: Recipe) -> int | None:
        """The largest side of the images, to estimate the memory of a residual network; None: unknown."""
        return None

    def frozen(self, net: nn.Module, recipe: Recipe) -> list[nn.Module]:
        """Modules that are not trained and stay in eval mode."""
        if recipe.freeze:
            raise UserError(f"freeze counts the stages of a residual network, and {self.network.name} has none.")
        return []

    def finish(self, net: nn.Module) -> None:  # noqa: B027
        """Called after the last step, before the last scores."""

    def measure_signal(self, net: nn.Module) -> dict[str, Any]:
        """A line of metrics about the signal in the network now."""
        raise UserError(f"signal_every measures residual units, and {self.network.name} has none.")

    def header(self) -> dict[str, str]:
        """What the file of weights says beside the run and its scores."""
        return {}

    def save(self, net: nn.Module, path: Path, header: Mapping[str, str]) -> None:
        """Write the trained network."""
        write_module(net, path, self.network.name, header)


def write_module(net: nn.Module, path: Path, name: str, header: Mapping[str, str]) -> None:
    """A state dict as safetensors. Its header says what it is: the module itself is the user's."""
    state = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in net.state_dict().items()}
    write(path, state, {"format": "pt", "module": name, **header})


def split_batch(batch: Any, sizes: Sequence[int]) -> list[Any]:
    """Parts of a batch: tensors and lists are cut along their examples; tuples and mappings hold several of these."""
    if isinstance(batch, Tensor):
        return list(torch.split(batch, list(sizes)))
    if isinstance(batch, tuple):
        return list(zip(*(split_batch(item, sizes) for item in batch), strict=True))
    if isinstance(batch, Mapping):
        columns = {name: split_batch(item, sizes) for name, item in batch.items()}
        return [{name: column[i] for name, column in columns.items()} for i in range(len(sizes))]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [batch[start : start + size] for start, size in zip(starts, sizes, strict=True)]
