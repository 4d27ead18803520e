"""The training step. Everything random is a pure function of the seed and the step, so a run that is stopped and
resumed ends with the same bytes.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from resnets.counter_rng import draws
from resnets.errors import UserError
from resnets.recipe import Epochs, Recipe
from resnets.training.distributed import Workers
from resnets.training.max_norm import apply_limits, pair_limits
from resnets.training.optimizers import build_optimizer, fits_optimizer, load_optimizer_state, optimizer_state
from resnets.training.schedule import Schedule
from resnets.training.task import Setup, Task

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Part(NamedTuple):
    """Examples of a batch that pass through the network together: BN sees them as one group."""

    rank: int  # of the process that has them in its share, among the processes that began the run
    number: int  # within that share
    size: int


def parts_of(recipe: Recipe, processes: int, ranks: Iterable[int]) -> Iterator[Part]:
    """The parts of a batch that belong to `ranks` among `processes`, in order."""
    for rank in ranks:
        share = Workers(rank, processes).share(recipe.batch)
        left = share.stop - share.start
        size = recipe.micro_batch or left
        yield from (Part(rank, i, min(size, left - start)) for i, start in enumerate(range(0, left, size)))


class Trainer:
    """A task in training on one device of `workers`; `step(i)` does step i, `state` is what a checkpoint holds."""

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        seed: int,
        *,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
        engine: str = "auto",
        memory: str = "fast",
        processes: int | None = None,
    ) -> None:
        """`processes` began the run, by default as many as train it now.

        Fewer processes take the shares of several, one after the other, so that BN sees the same images together and
        the dropout masks are the same.
        """
        self.task, self.recipe, self.seed = task, recipe, seed
        self.device, self.workers = torch.device(device), workers or Workers()
        processes = processes or self.workers.world
        if recipe.batch < processes:
            raise UserError(f"a batch of {recipe.batch} cannot be split over {processes} processes.")
        ranks = self.workers.ranks(processes)
        self.parts = list(parts_of(recipe, processes, ranks))
        first, last = (Workers(rank, processes).share(recipe.batch) for rank in (ranks[0], ranks[-1]))
        largest = max(part.size for part in self.parts)
        task.open(Setup(recipe, seed, self.device, slice(first.start, last.stop), largest))
        self.schedule = Schedule(recipe, task.count_examples(recipe))
        self.stream = Epochs(self.schedule.images, recipe.batch)

        self.net = task.build(seed).to(self.device)
        if recipe.channels_last:
            self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.frozen = task.frozen(self.net, recipe)
        self.average = copy.deepcopy(self.net).requires_grad_(False) if recipe.ema else None
        self.prepared = self._prepare(engine, memory)
        self.model = self._parallelize(self.prepared)
        fused = engine != "plain" and self.device.type != "mps"
        self.limits = pair_limits(self.net, recipe.norm_limits) if recipe.max_norm else []
        self.optimizer = build_optimizer(recipe, task.groups(self.net, recipe), fused)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "fp16")
        longest = max(self.stream.steps(epoch) for epoch in range(3))
        self.record = torch.zeros(longest + 1, len(task.numbers), device=self.device)  # of each step of an epoch

    def _prepare(self, engine: str, memory: str) -> nn.Module:
        net = self.net
        if self.workers.world > 1 and self.recipe.sync_bn:
            if self.device.type == "cpu":
                raise UserError("sync_bn works on GPUs only; leave it off on CPUs.")
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]
        return self.task.prepare(net, engine, memory)

    def _parallelize(self, net: nn.Module) -> nn.Module:
        if self.workers.world == 1:
            return net
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(net, device_ids=ids)

    # --- a step -------------------------------------------------------------------------------

    def step(self, step: int) -> None:
        """Forward, backward and update for this process's share of batch `step`."""
        self.net.train()
        for module in self.frozen:
            module.eval()
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.lr(step, group["rate"])
            if group.get("fades"):
                group["lr"] *= self.schedule.fade(step)
            if (momentum := self.schedule.momentum(step)) is not None:
                group["momentum"] = momentum
        batch = self.task.batch(step)
        seen = torch.zeros(len(self.task.numbers), device=self.device)
        statistics: list[Tensor] = []
        self.optimizer.zero_grad()
        for part, examples in zip(self.parts, self.task.split(batch, [p.size for p in self.parts]), strict=True):
            if part.rank > self.parts[0].rank and not statistics:
                statistics = [buffer.clone() for buffer in self.net.buffers()]
            torch.manual_seed(self._noise(step, part))  # for the dropout shortcut
            # The processes' gradients are averaged, so each part counts by its share of the whole batch.
            share = part.size * self.workers.world / self.recipe.batch
            with self._sync(part == self.parts[-1]):
                with self._autocast():
                    loss, others = self.task.loss(self.model, examples)
                torch.autograd.backward(self.scaler.scale(loss * share))
            numbers = {"loss": loss.detach().float(), **others}
            seen += torch.stack([numbers[name].float() for name in self.task.numbers]) * (share / self.workers.world)
        if statistics:  # as among several processes, BN keeps those of the first share alone
            for buffer, kept in zip(self.net.buffers(), statistics, strict=True):
                buffer.copy_(kept)
        if self.recipe.clip_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip_norm)
        self.scaler.step(self.optimizer)
        apply_limits(self.limits)
        self.scaler.update()
        if self.average is not None:
            self._update_average(step)
        self.record[self.stream.place(step)] = self.workers.sum_over(seen)

    def _noise(self, step: int, part: Part) -> int:
        return int(draws("noise", self.seed, step, np.array([part.rank << 32 | part.number]))[0] >> np.uint64(1))

    def _sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients travel between processes once a step, with the last part."""
        if last or not isinstance(self.model, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.model.no_sync()

    def _autocast(self) -> torch.autocast:
        dtype = _DTYPES.get(self.recipe.precision)
        return torch.autocast(self.device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def _update_average(self, step: int) -> None:
        """Average weights and BN statistics over steps, over fewer at the start."""
        assert self.average is not None
        decay = min(self.recipe.ema, (1 + step) / (10 + step))
        for mean, now in zip(self.average.state_dict().values(), self.net.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - decay)
            else:
                mean.copy_(now)

    # --- results ------------------------------------------------------------------------------

    def means(self, first: int, last: int) -> dict[str, float]:
        """Means over steps first to last of one epoch, over all processes. A loss that is not finite ends the run."""
        rows = self.record[self.stream.place(first) : self.stream.place(last) + 1].double().cpu()
        for step, loss in enumerate(rows[:, 0].tolist(), first):
            if not math.isfinite(loss):
                raise NotFiniteError("the loss", step, self.schedule.lr(step))
        factors = self.task.numbers.items()
        return {name: factor * mean for (name, factor), mean in zip(factors, rows.mean(0).tolist(), strict=True)}

    def check(self, last: int) -> None:
        """Raise if a loss of this epoch, or a weight or statistic after step `last`, is not finite."""
        self.means(self.stream.first(self.stream.epoch(last)), last)
        for name, tensor in self.net.state_dict().items():
            if not tensor.isfinite().all():
                raise NotFiniteError(name, last, self.schedule.lr(last))

    @property
    def final_net(self) -> nn.Module:
        """The network that is tested and saved: the averaged one if there is one."""
        return self.net if self.average is None else self.average

    def score(self, split: str) -> dict[str, Any]:
        """The scores on a split, with the BN statistics of rank 0."""
        self.workers.sync(self.final_net.buffers())
        return self.task.score(self.final_net, split, self.workers)

    def finish(self) -> None:
        self.task.finish(self.final_net)

    # --- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Every tensor that later steps depend on. Random numbers are not among them: they follow from the step."""
        tensors = {f"net.{k}": v for k, v in self.net.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        tensors |= optimizer_state(self.optimizer, self.net)
        if self.scaler.is_enabled():
            tensors["scale"] = torch.tensor([self.scaler.get_scale(), self.scaler.state_dict()["_growth_tracker"]])
        tensors["record"] = self.record
        return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}

    def fits(self, tensors: dict[str, Tensor]) -> bool:
        """Whether they are a state of this training. Before the first step the optimizer has no state yet."""
        own = {name: tensor.shape for name, tensor in self.state().items() if not _is_optimizers(name)}
        found = {name: tensor.shape for name, tensor in tensors.items() if not _is_optimizers(name)}
        return own == found and fits_optimizer(self.net, tensors)

    def load(self, tensors: dict[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.net.load_state_dict(part("net."))
        if self.average is not None:
            self.average.load_state_dict(part("average."))
        load_optimizer_state(self.optimizer, self.net, tensors)
        if self.scaler.is_enabled():
            state = self.scaler.state_dict()
            state["scale"], state["_growth_tracker"] = float(tensors["scale"][0]), int(tensors["scale"][1])
            self.scaler.load_state_dict(state)
        self.record.copy_(tensors["record"])


def _is_optimizers(name: str) -> bool:
    return name.startswith(("momentum.", "optimizer."))


class NotFiniteError(Exception):
    """The loss of a step, or a weight or statistic after it, is not a finite number."""

    def __init__(self, what: str, step: int, lr: float) -> None:
        super().__init__(f"{what} is not finite in step {step} (learning rate {lr:g})")
