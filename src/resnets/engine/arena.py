"""Memory for maps, kept in the process and used again.

The heap of the C library cannot reuse the place of a freed map while the maps beside it live: to align a map it asks
for some extra bytes, and the freed place lacks them. A network that allocates hundreds of maps then takes up to twice
the memory that it needs. Here the place of a map is exactly as large as the map, and free neighbours are joined.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
import weakref
from bisect import bisect
from collections import deque
from contextlib import suppress

import torch
from torch import Tensor

_REGION = 256 << 20  # bytes asked of the system at a time; untouched pages cost nothing
_ALIGNED = 64
_HUGE = 2 << 20  # bytes of a huge page


class _Region:
    """Memory of the system, in huge pages where it has them: they are cheaper to touch first and to look up."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = mmap.mmap(-1, size + _HUGE)  # with room to begin at a huge page
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without them
                self.memory.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.at = -(-start // _HUGE) * _HUGE


class Arena:
    """Regions of memory, and the places in them that are free."""

    def __init__(self, region: int = _REGION) -> None:
        self.region = region
        self.regions: list[_Region] = []  # never given back
        self.free: list[tuple[int, int]] = []  # addresses and sizes, in order
        self.returned: deque[tuple[int, int]] = deque()  # of maps that were freed, at any moment and in any thread
        self.given = 0  # maps so far
        self.lock = threading.Lock()

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """An uninitialised float32 map in channels_last."""
        _, c, h, w = shape
        length = max(4 * math.prod(shape), 1)
        size = -(-length // _ALIGNED) * _ALIGNED
        with self.lock:
            at = self._take(size)
            self.given += 1
        place = (ctypes.c_char * length).from_address(at)
        place.arena = self  # type: ignore[attr-defined]  # the regions live as long as the map
        weakref.finalize(place, self.returned.append, (at, size)).atexit = False
        storage = torch.frombuffer(place, dtype=torch.uint8).untyped_storage()  # keeps `place` as long as it lives
        return torch.empty(0).set_(storage, 0, shape, (c * h * w, 1, w * c, c))

    def _take(self, size: int) -> int:
        """The newest free place of this very size, which may be in the CPU's cache; else the lowest that fits."""
        for i in reversed(range(len(self.returned))):
            if self.returned[i][1] == size:
                at = self.returned[i][0]
                del self.returned[i]
                return at
        while self.returned:
            self._give(*self.returned.popleft())
        for i, (at, room) in enumerate(self.free):
            if room >= size:
                self.free[i : i + 1] = [(at + size, room - size)] if room > size else []
                return at
        fresh = _Region(max(self.region, size))
        self.regions.append(fresh)
        self._give(fresh.at, fresh.size)
        return self._take(size)

    def _give(self, at: int, size: int) -> None:
        """A free place, joined with those that it touches."""
        i = bisect(self.free, (at, size))
        if i < len(self.free) and self.free[i][0] == at + size:
            size += self.free.pop(i)[1]
        if i > 0 and sum(self.free[i - 1]) == at:
            i -= 1
            before, more = self.free.pop(i)
            at, size = before, size + more
        self.free.insert(i, (at, size))


shared = Arena()


def empty_map(shape: tuple[int, ...]) -> Tensor:
    """A float32 map in channels_last on the CPU; with `RESNETS_KEEP_MEMORY=0` the system allocates it."""
    if os.environ.get("RESNETS_KEEP_MEMORY") == "0":
        return torch.empty(shape, memory_format=torch.channels_last)
    return shared.empty(shape)
