"""Decode in worker processes. A worker gets paths, and draws crops from seed, epoch and index itself, so that neither
the number of workers nor a restart changes a pixel. It gets no copy of the list of files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from resnets.data import jpeg
from resnets.data.budget import Budget, shared_budget, use_budget
from resnets.data.decode import BadImageError, Buffer, read
from resnets.data.files import Files
from resnets.data.random_crops import View

Item = TypeVar("Item")

PIECE = 16  # images in a request


@dataclass(frozen=True)
class Request:
    """Images of one epoch to decode."""

    epoch: int
    index: list[int]
    paths: list[str]


@dataclass(frozen=True)
class Piece:
    """The decoded images of a request."""

    request: Request
    pixels: npt.NDArray[np.uint8]  # (N, side, side, 3); zeros for a bad image
    faults: dict[int, str]  # by position: the end of a sentence that starts with the path


class Views(Dataset[Piece]):
    """Decodes one view of each file."""

    def __init__(self, view: View, seed: int) -> None:
        self.view, self.seed = view, seed

    def __getitem__(self, request: Request) -> Piece:
        numbers, mirrored = self.view.numbers(self.seed, request.epoch, np.array(request.index))
        pixels = np.empty((len(request.paths), self.view.side, self.view.side, 3), np.uint8)
        faults, buffer = {}, Buffer()
        for i, path in enumerate(request.paths):
            try:
                self.view.decode(read(path), numbers[i], bool(mirrored[i]), pixels[i], buffer)
            except BadImageError as bad:
                pixels[i] = 0
                faults[i] = str(bad)
        return Piece(request, pixels, faults)


def pieces(files: Files, epochs: Iterable[tuple[int, npt.NDArray[np.int64]]]) -> Iterator[Request]:
    """Split images, given by epoch and index, into requests for the workers."""
    for epoch, index in epochs:
        for start in range(0, len(index), PIECE):
            some = index[start : start + PIECE].tolist()
            yield Request(epoch, some, [files.path(i) for i in some])


@contextlib.contextmanager
def decode_ahead(views: Dataset[Item], requests: Iterable[Any], workers: int) -> Iterator[Iterator[Item]]:
    """`views[request]` for each request in order, prefetched by worker processes; with 0 workers in this process."""
    jpeg.load()  # compile it here, not in each worker
    loader: DataLoader[Item] = DataLoader(
        views,
        sampler=requests,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        collate_fn=_identity,
        worker_init_fn=partial(_start_worker, os.getpid(), shared_budget()) if workers else None,
    )
    stream = iter(loader)
    try:
        yield stream
    finally:
        if hasattr(stream, "_shutdown_workers"):  # now, not when the last reference is dropped
            stream._shutdown_workers()


def _identity(item: Item) -> Item:
    return item


def _start_worker(parent: int, budget: Budget, number: int) -> None:
    """Ignore Ctrl-C, which the training process handles, and exit when that process is gone."""
    use_budget(budget)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_with(parent: int) -> None:
    """Poll the parent: torch's own watchdog blocks on a full queue if the parent was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def count_cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_workers(device: torch.device) -> int:
    """The default number of workers: one when training on the CPU, else this process's share of the cores."""
    if device.type == "cpu":
        return 1
    return max(1, min(16, count_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
