"""Limit how many pixels all threads or worker processes of a command decode at the same time.

Decoding takes up to eight bytes a pixel. Each image waits for room; the largest one allowed is decoded alone.
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
SMALL = 1 << 20  # pixels of an image that never waits
LARGE = 1 << 25  # pixels of an image whose memory is returned at once


class Budget:
    """Shares of memory to take and release. `locks` is `threading` or `multiprocessing`."""

    def __init__(self, locks: Any = threading) -> None:
        self.turn, self.shares = locks.Lock(), locks.Semaphore(SHARES)

    @contextmanager
    def take(self, shares: int) -> Iterator[None]:
        """Wait for this many shares, or for all; first come, first served, so that large images get their turn."""
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
    """Use this budget from now on, in the whole process."""
    _budget.turn, _budget.shares = budget.turn, budget.shares


@contextmanager
def room_for(size: tuple[int, int]) -> Iterator[None]:
    """Wait for room to decode and scale an image of this width and height."""
    pixels = size[0] * size[1]
    if pixels <= SMALL:
        yield
        return
    with _budget.take(-(-pixels // SHARE)):
        try:
            yield
        finally:
            if pixels > LARGE:
                _trim_memory()


def _trim_memory() -> None:
    """Return freed memory to the system: glibc keeps it for the thread that freed it."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@contextmanager
def room_for_a_network() -> Iterator[None]:
    """Wait for room to run a network on a batch of views."""
    with _budget.take(SHARES // 4):
        yield
