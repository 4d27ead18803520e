"""Decoding in worker processes. A worker is told paths and draws the rest from seed, epoch and index itself, so that
neither the number of workers nor a restart changes a pixel; it gets no copy of the index of files.
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

Found = TypeVar("Found")

PIECE = 16  # images that a worker decodes at a time


@dataclass(frozen=True)
class Wanted:
    """Images of one epoch."""

    epoch: int
    index: list[int]
    paths: list[str]


@dataclass(frozen=True)
class Piece:
    """What came of them."""

    wanted: Wanted
    pixels: npt.NDArray[np.uint8]  # (N, side, side, 3); zeros where there is a fault
    faults: dict[int, str]  # by place: the end of a sentence that begins with the path


class Views(Dataset[Piece]):
    """Looks at files."""

    def __init__(self, view: View, seed: int) -> None:
        self.view, self.seed = view, seed

    def __getitem__(self, wanted: Wanted) -> Piece:
        numbers, mirrored = self.view.numbers(self.seed, wanted.epoch, np.array(wanted.index))
        pixels = np.empty((len(wanted.paths), self.view.side, self.view.side, 3), np.uint8)
        faults, buffer = {}, Buffer()
        for i, path in enumerate(wanted.paths):
            try:
                pixels[i] = self.view(read(path), numbers[i], bool(mirrored[i]), buffer)
            except BadImageError as bad:
                pixels[i] = 0
                faults[i] = str(bad)
        return Piece(wanted, pixels, faults)


def pieces(files: Files, epochs: Iterable[tuple[int, npt.NDArray[np.int64]]]) -> Iterator[Wanted]:
    """Images by epoch and index, in pieces for the workers."""
    for epoch, index in epochs:
        for start in range(0, len(index), PIECE):
            some = index[start : start + PIECE].tolist()
            yield Wanted(epoch, some, [files.path(i) for i in some])


@contextlib.contextmanager
def decode_ahead(views: Dataset[Found], wanted: Iterable[Any], workers: int) -> Iterator[Iterator[Found]]:
    """What is found for each of the wanted, in order, some of it ahead of time in worker processes; 0: in this one."""
    jpeg.load()  # compiled here, if need be, and not in each worker
    loader: DataLoader[Found] = DataLoader(
        views,
        sampler=wanted,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        collate_fn=_as_it_is,
        worker_init_fn=partial(_begin, os.getpid(), shared_budget()) if workers else None,
    )
    stream = iter(loader)
    try:
        yield stream
    finally:
        if hasattr(stream, "_shutdown_workers"):  # now, and not when the last reference goes
            stream._shutdown_workers()


def _as_it_is(found: Found) -> Found:
    return found


def _begin(parent: int, budget: Budget, number: int) -> None:
    """Ctrl-C is for the process that trains; it ends its workers when it is ready to, and they end with it."""
    use_budget(budget)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with(parent: int) -> None:
    """torch's own watch waits for what is on its way to be read, which nobody does after a kill."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def usual_workers(device: torch.device) -> int:
    """Worker processes for a device: its share of the cores beside a GPU; beside training on the CPU itself, one."""
    if device.type == "cpu":
        return 1
    return max(1, min(16, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
