"""How many pixels are decoded at the same time, over all threads or over all decoding processes of a command.

A picture needs up to eight bytes a pixel while it is decoded. One waits until there is room for it; the largest that is
allowed goes alone.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SHARES = 16
SHARE = 1 << 23  # pixels
SMALL = 1 << 20  # pixels of a picture that never waits
LARGE = 1 << 25  # pixels of a picture whose memory is given back at once


class Budget:
    """Shares of memory that are taken and given back. `locks` is where the locks come from."""

    def __init__(self, locks: Any = threading) -> None:
        self.turn, self.shares = locks.Lock(), locks.Semaphore(SHARES)

    @contextmanager
    def take(self, shares: int) -> Iterator[None]:
        """Wait for so many shares, or for all; in turn, so that a large picture is not overtaken for ever."""
        shares = min(shares, SHARES)
        with self.turn:
            for _ in range(shares):
                self.shares.acquire()
        try:
            yield
        finally:
            for _ in range(shares):
                self.shares.release()


_budget = Budget()


def shared_budget() -> Budget:
    """A budget for several processes."""
    return Budget(multiprocessing)


def use_budget(budget: Budget) -> None:
    """Take room from this budget from now on, in the whole process."""
    _budget.turn, _budget.shares = budget.turn, budget.shares


@contextmanager
def room_for(size: tuple[int, int]) -> Iterator[None]:
    """Room to decode a picture of this width and height and to scale it."""
    pixels = size[0] * size[1]
    if pixels <= SMALL:
        yield
        return
    with _budget.take(-(-pixels // SHARE)):
        try:
            yield
        finally:
            if pixels > LARGE:
                _give_back_freed_memory()


def _give_back_freed_memory() -> None:
    """glibc keeps what a thread has freed for that thread alone; of large pictures each would keep one."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@contextmanager
def room_for_a_network() -> Iterator[None]:
    """Room to run a network on a batch of views."""
    with _budget.take(SHARES // 4):
        yield
