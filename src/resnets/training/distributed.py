"""Several devices by torch.distributed: `torchrun -m resnets train ...` starts one process for each device."""

from __future__ import annotations

import atexit
import contextlib
import glob
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from resnets.errors import UserError

Value = TypeVar("Value")


@dataclass(frozen=True)
class Workers:
    """This process among all; alone it is rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """This process's contiguous piece of `count` things, equal to within one."""
        return slice(count * self.rank // self.world, count * (self.rank + 1) // self.world)

    def total(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.world == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        if dist.get_backend() == "nccl":
            values = values.cuda()
        dist.all_reduce(values)
        return values.tolist()

    def sum_over(self, values: Tensor) -> Tensor:
        """Sum a tensor over all processes in place; the host does not wait for it."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def sync(self, tensors: Iterable[Tensor]) -> None:
        """Copy rank 0's tensors to every process."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def broadcast(self, value: Value) -> Value:
        """Send rank 0's object to every process."""
        if self.world == 1:
            return value
        box: list[Any] = [value]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """The objects of all processes, in each of them."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value)
        return found

    def compute_on_main(self, compute: Callable[[], Value]) -> Value:
        """Compute in rank 0 and send the result to every process; a `UserError` is raised in all of them."""
        if self.world == 1:
            return compute()
        answer: tuple[Any, str | None] = (None, None)
        if self.is_main:
            try:
                answer = compute(), None
            except UserError as error:
                answer = None, str(error)
        found, mistake = self.broadcast(answer)
        if mistake is not None:
            raise UserError(mistake)
        return found

    def ranks(self, processes: int) -> range:
        """The ranks, among the `processes` that began a run, whose shares of a batch this process takes."""
        return range(*self.share(processes).indices(processes))


def start(device: torch.device) -> tuple[Workers, torch.device]:
    """Join the other processes where torchrun started several; each GPU belongs to one of them."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        device = torch.device("cuda", local) if device.index is None else device
        torch.cuda.set_device(device)
    if world == 1:
        return Workers(), device
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **_join_store(world))
        atexit.register(_stop)  # not after each run: the processes cannot meet a second time
    return Workers(dist.get_rank(), dist.get_world_size()), device


def _join_store(world: int) -> dict[str, Any]:
    """Arguments of `init_process_group` that keep restarts apart, if torchrun shares its store with us.

    torchrun keeps one store for all its restarts, and the addresses of dead processes stay in it; the number of the
    restart keeps them apart. Several machines count their restarts each on its own: there
    `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` gives every restart a store of its own.
    """
    env = os.environ
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or env.get("GROUP_WORLD_SIZE") != "1":
        return {}
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    store = TCPStore(host, port, world, is_master=False, wait_for_workers=False)
    prefix = f"restart {env['TORCHELASTIC_RESTART_COUNT']}"
    return {"store": PrefixStore(prefix, store), "rank": int(env["RANK"]), "world_size": world}


def _stop() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        _wait_for_gloo()


def _wait_for_gloo(longest: float = 10.0) -> None:
    """Wait until gloo's threads are idle, so that none of them needs Python while Python ends.

    `DistributedDataParallel` keeps the group and its threads alive. A thread frees the tensors of its last collective
    after the caller has gone on; if Python is ending by then, C++ aborts the process. While this thread sleeps, nobody
    else holds Python's lock, so a thread of gloo that sleeps too has nothing left to free.
    """
    deadline, idle = time.monotonic() + longest, 0
    while idle < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
        idle = idle + 1 if all(state == "S" for state in _read_gloo_states()) else 0


def _read_gloo_states() -> list[str]:
    """The states of the threads in which gloo runs collectives, as Linux writes them: S sleeps, R runs."""
    states = []
    for path in glob.glob("/proc/self/task/*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            name, _, rest = Path(path).read_text().partition("(")[2].rpartition(")")
            if name.startswith("pt_gloo"):
                states.append(rest.split()[0])
    return states
