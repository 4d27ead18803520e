"""The training loop. Everything random is a pure function of the seed and the step, so that a run that is cut
and taken up again ends with the same bytes.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from resnets.analysis.propagation import cheap
from resnets.data.counter_rng import draws, order
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.engine import prepare
from resnets.errors import UserError
from resnets.evaluation.precise_bn import precise_bn
from resnets.evaluation.score import Score, evaluate_batches
from resnets.nn import ResNet, build
from resnets.recipe import Recipe
from resnets.spec import Spec
from resnets.training.batches import Batches, FileBatches, MemoryBatches
from resnets.training.distributed import Workers
from resnets.training.muon import Muon
from resnets.training.schedule import Schedule

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_WATCHED = 32  # images on which the signal is measured


@dataclass(frozen=True)
class Means:
    """Means over some steps."""

    loss: float
    error: float  # per cent


class Part(NamedTuple):
    """Images of a batch that pass through the network together: BN sees them as one group."""

    rank: int  # of the process that the run began with whose share they are in
    number: int  # within that share
    size: int


def parts_of(recipe: Recipe, processes: int, ranks: Iterable[int]) -> Iterator[Part]:
    """The parts of a batch that belong to some ranks of so many processes, in order."""
    for rank in ranks:
        share = Workers(rank, processes).share(recipe.batch)
        left = share.stop - share.start
        size = recipe.micro_batch or left
        yield from (Part(rank, i, min(size, left - start)) for i, start in enumerate(range(0, left, size)))


class Trainer:
    """A network in training on one device of `workers`; `step(i)` does step i, `state` holds all that is to be kept."""

    def __init__(
        self,
        spec: Spec,
        data: Images | Folder,
        recipe: Recipe,
        seed: int,
        *,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
        engine: str = "auto",
        memory: str = "fast",
        net: ResNet | None = None,
        reading: Mapping[str, Any] | None = None,
        processes: int | None = None,
    ) -> None:
        """`net` is what to begin with, where that is not new; `reading` are options of `FileBatches`.

        `processes` is how many the run began with, if not as many as now: fewer ones take on the shares of several, one
        after the other, so that BN sees the same images together and the dropout masks are the same.
        """
        self.recipe, self.seed, self.data = recipe, seed, data
        self.device, self.workers = torch.device(device), workers or Workers()
        processes = processes or self.workers.world
        if recipe.batch < processes:
            raise UserError(f"a batch of {recipe.batch} cannot be split over {processes} processes.")
        ranks = self.workers.ranks(processes)
        self.parts = list(parts_of(recipe, processes, ranks))
        first, last = (Workers(rank, processes).share(recipe.batch) for rank in (ranks[0], ranks[-1]))
        share = slice(first.start, last.stop)
        self.feed: Batches
        if isinstance(data, Folder):
            side = recipe.side or spec.input_size
            at_once = max(part.size for part in self.parts)  # what fits in training fits in testing
            options = {"side": side, "at_once": at_once, **(reading or {})}
            self.feed = FileBatches(data, recipe, seed, self.device, share, **options)
        else:
            self.feed = MemoryBatches(data, recipe, seed, self.device, share)
        self.stream = self.feed.stream
        self.schedule = Schedule(recipe, self.stream.n)

        self.net = (net or build(spec, seed=seed)).to(self.device)
        if recipe.channels_last:
            self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.frozen = frozen(self.net, recipe.freeze)
        self.average = copy.deepcopy(self.net).requires_grad_(False) if recipe.ema else None
        self.engine = engine
        self.prepared = prepare(self._synchronised(self.net), engine=engine, memory=memory)
        self.model = self._parallel(self.prepared)
        self.optimizer = self._optimizer()
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "fp16")
        longest = max(self.stream.steps(epoch) for epoch in range(3))
        self.record = torch.zeros(longest + 1, 2, device=self.device)  # loss and share wrong, each step of an epoch

    def _synchronised(self, net: ResNet) -> ResNet:
        if self.workers.world == 1 or not self.recipe.sync_bn:
            return net
        if self.device.type == "cpu":
            raise UserError("sync_bn works on GPUs only; leave it off on CPUs.")
        return nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]

    def _parallel(self, net: nn.Module) -> nn.Module:
        if self.workers.world == 1:
            return net
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(net, device_ids=ids)

    def _optimizer(self) -> torch.optim.Optimizer:
        recipe = self.recipe
        if recipe.optimizer == "muon":
            return Muon(self._groups(), recipe.lr, recipe.momentum)
        fused = self.engine != "plain" and self.device.type != "mps"
        return torch.optim.SGD(self._groups(), recipe.lr, recipe.momentum, nesterov=recipe.nesterov, fused=fused)

    def _groups(self) -> list[dict[str, Any]]:
        """The Torch code decays everything; `weights` leaves out BN and biases. Muon takes the filters of the units."""
        recipe = self.recipe
        banks = {id(m.weight) for m in self.net.units.modules() if isinstance(m, nn.Conv2d)}
        decayed: list[nn.Parameter] = []
        free: list[nn.Parameter] = []
        filters: list[nn.Parameter] = []
        for parameter in filter(lambda p: p.requires_grad, self.net.parameters()):
            if recipe.optimizer == "muon" and id(parameter) in banks:
                filters.append(parameter)
            else:
                (decayed if parameter.dim() > 1 or recipe.decay_on == "all" else free).append(parameter)
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": recipe.weight_decay},
            {"params": free, "weight_decay": 0.0},
            {"params": filters, "weight_decay": recipe.muon_decay, "filters": True, "rate": recipe.muon_lr},
        ]
        return [{"rate": recipe.lr, **group} for group in groups if group["params"]]

    # --- a step -------------------------------------------------------------------------------

    def step(self, step: int) -> None:
        """Forward, backward and update for this worker's share of batch `step`."""
        self.net.train()
        for module in self.frozen:
            module.eval()
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.lr(step, group["rate"])
        images, labels = self._batch(step)
        sizes = [part.size for part in self.parts]
        seen = torch.zeros(2, device=self.device)
        statistics: list[Tensor] = []
        self.optimizer.zero_grad()
        for part, x, y in zip(self.parts, torch.split(images, sizes), torch.split(labels, sizes), strict=True):
            if part.rank > self.parts[0].rank and not statistics:
                statistics = [buffer.clone() for buffer in self.net.buffers()]
            torch.manual_seed(self._noise(step, part))  # for the dropout shortcut
            with self._sync(part == self.parts[-1]):
                with self._autocast():
                    out = self.model(x)
                    loss = functional.cross_entropy(out, y, label_smoothing=self.recipe.label_smoothing)
                # The processes' gradients are averaged, so each part counts by its share of the whole batch.
                share = len(y) * self.workers.world / self.recipe.batch
                torch.autograd.backward(self.scaler.scale(loss * share))
            with torch.no_grad():
                wrong = (out.argmax(1) != y).float().mean()
                seen += torch.stack([loss.detach().float(), wrong]) * (share / self.workers.world)
        if statistics:  # as among several processes, BN keeps those of the first share alone
            for buffer, kept in zip(self.net.buffers(), statistics, strict=True):
                buffer.copy_(kept)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self._average(step)
        self.record[self.stream.place(step)] = self.workers.sum_over(seen)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        images, labels = self.feed.batch(step, self.schedule)
        return self._laid_out(images), labels

    def _laid_out(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last if self.recipe.channels_last else torch.contiguous_format)

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

    def _average(self, step: int) -> None:
        """Weights and BN statistics averaged over steps, over fewer at the start."""
        assert self.average is not None
        decay = min(self.recipe.ema, (1 + step) / (10 + step))
        for mean, now in zip(self.average.state_dict().values(), self.net.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - decay)
            else:
                mean.copy_(now)

    # --- what it came to ----------------------------------------------------------------------

    def means(self, first: int, last: int) -> Means:
        """Means over steps first to last of one epoch, over all workers. A loss that is not finite ends the run."""
        rows = self.record[self.stream.place(first) : self.stream.place(last) + 1].double().cpu()
        for step, loss in enumerate(rows[:, 0].tolist(), first):
            if not math.isfinite(loss):
                raise NotFiniteError("the loss", step, self.schedule.lr(step))
        loss, wrong = rows.mean(0).tolist()
        return Means(loss, 100 * wrong)

    def check(self, last: int) -> None:
        """Raise if a loss of this epoch, or a weight or statistic after step `last`, is not finite."""
        self.means(self.stream.first(self.stream.epoch(last)), last)
        for name, tensor in self.net.state_dict().items():
            if not tensor.isfinite().all():
                raise NotFiniteError(name, last, self.schedule.lr(last))

    def signal(self) -> dict[str, list[float | None]]:
        """How signals travel through the net now, on training images as they are; it leaves no trace."""
        (x,) = self.feed.plain(order(self.stream.n, 0, 0)[:_WATCHED], _WATCHED)
        return cheap(self.net, self._laid_out(x))

    @property
    def tested(self) -> nn.Module:
        """The network that is tested and kept: the averaged one where there is one."""
        return self.net if self.average is None else self.average

    def score(self, split: str) -> Score:
        """The error on `validation` or `test`: each worker tests its share with the BN statistics that rank 0 keeps."""
        self.workers.sync(self.tested.buffers())
        mine = self.workers.share(self.feed.count(split))
        part = evaluate_batches(self.tested, self.feed.tested(split, mine))
        images, wrong, loss = self.workers.total(part.images, part.wrong, part.loss * part.images)
        return Score(round(images), round(wrong), loss / max(images, 1))

    def finish(self) -> None:
        """Precise BN, where the recipe asks for it: on the first images in order, without augmentation."""
        count, size = min(self.recipe.precise_bn, self.stream.n), self.recipe.batch
        batches = self.feed.plain(np.arange(count - count % size or count), size)
        if count:
            precise_bn(self.tested, batches)

    # --- what is kept -------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Every tensor that later steps depend on. Random numbers are not among them: they follow from the step."""
        tensors = {f"net.{k}": v for k, v in self.net.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        for name, parameter in self.net.named_parameters():
            if "momentum_buffer" in (held := self.optimizer.state.get(parameter, {})):
                tensors[f"momentum.{name}"] = held["momentum_buffer"]
        if self.scaler.is_enabled():
            tensors["scale"] = torch.tensor([self.scaler.get_scale(), self.scaler.state_dict()["_growth_tracker"]])
        tensors["record"] = self.record
        return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}

    def fits(self, tensors: dict[str, Tensor]) -> bool:
        """Whether they are a state of this training. Before the first step there is no momentum yet."""
        own = {name: tensor.shape for name, tensor in self.state().items()}
        own |= {f"momentum.{name}": parameter.shape for name, parameter in self.net.named_parameters()}
        needed = {name for name in own if not name.startswith("momentum.")}
        return needed <= tensors.keys() and all(own.get(name) == tensor.shape for name, tensor in tensors.items())

    def load(self, tensors: dict[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.net.load_state_dict(part("net."))
        if self.average is not None:
            self.average.load_state_dict(part("average."))
        momentum = part("momentum.")
        for name, parameter in self.net.named_parameters():
            if name in momentum:  # in the parameter's own memory layout, which decides the order of sums
                buffer = torch.empty_like(parameter).copy_(momentum[name])
                self.optimizer.state[parameter] = {"momentum_buffer": buffer}
        if self.scaler.is_enabled():
            state = self.scaler.state_dict()
            state["scale"], state["_growth_tracker"] = float(tensors["scale"][0]), int(tensors["scale"][1])
            self.scaler.load_state_dict(state)
        self.record.copy_(tensors["record"])


def frozen(net: ResNet, stages: int) -> list[nn.Module]:
    """The stem and the first stages, whose weights and statistics are to stay as they are; none for 0 stages."""
    if stages > len(net.stages):
        raise UserError(f"{net.spec.name} has {len(net.stages)} stages, so freeze cannot be {stages}.")
    units = [unit for stage in net.stages[:stages] for unit in stage]
    modules: list[nn.Module] = [net.stem, *units] if stages else []
    for module in modules:
        module.requires_grad_(False)
    return modules


class NotFiniteError(Exception):
    """The loss of a step, or what the step left, is not a finite number."""

    def __init__(self, what: str, step: int, lr: float) -> None:
        super().__init__(f"{what} is not finite in step {step} (learning rate {lr:g})")
