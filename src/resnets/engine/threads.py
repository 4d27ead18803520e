"""How many threads compute: a number, or as many as are fastest beside what else the machine does.

The kernels give the same bytes on any number of threads, so the number may follow the load while a network trains or
tests. A network that PyTorch runs keeps the number that it began with, as its rounding depends on it.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch

from resnets.options import parse_threads

_BETTER = 0.97  # of the time: less of a gain is noise
_JUMP = 1.3  # times as long as usual: a step that takes more asks for a trial
_WORSE = 1.25  # times as long as the best: a number of threads that takes more is tried once, not twice
_FIRST, _SOON, _LATE = 3, 20, 100  # steps before the first trial, between trials, and between those that change nothing
_SECONDS = 2.0, 60.0  # between trials, at least and at most


class Follower:
    """Chooses among numbers of threads by measuring steps: `tick` is called at the start of each.

    Now and then each number computes two steps, and the one with the fastest step goes on. A step that takes much
    longer than those before it brings such a trial forward.
    """

    def __init__(
        self,
        most: int,
        clock: Callable[[], float] = time.perf_counter,
        apply: Callable[[int], None] | None = None,
    ) -> None:
        self.counts = sorted({most, max(1, most - 1), max(1, most // 2), 1}, reverse=True)
        self.clock, self.apply = clock, apply or _use
        self.count = most
        self._key: Hashable = None
        self._started = math.nan
        self._usual = math.nan  # seconds of a step with `count` threads
        self._slow = 0  # steps in a row that took much longer
        self._since, self._next = 0, _FIRST  # steps since the last trial, and until the next
        self._tried_at, self._pause = -math.inf, _SECONDS[0]
        self._plan: list[int] = []
        self._found: dict[int, float] = {}

    def tick(self, key: Hashable) -> None:
        """A step begins; `key` names its kind: only steps of one kind are compared."""
        if key != self._key:
            self._key, self._usual, self._plan, self._found = key, math.nan, [], {}
        elif not math.isnan(self._started):
            self._see(self.clock() - self._started)
        self.apply(self._plan[0] if self._plan else self.count)
        self._started = self.clock()

    def _see(self, seconds: float) -> None:
        if self._plan:
            self._try(seconds)
            return
        self._since += 1
        self._slow = self._slow + 1 if seconds > _JUMP * self._usual else 0
        if not self._slow:
            self._usual = seconds if math.isnan(self._usual) else 0.8 * self._usual + 0.2 * seconds
        waited = self._since >= self._next and self.clock() - self._tried_at >= self._pause
        if len(self.counts) > 1 and (waited or (self._slow >= 2 and self._since >= _FIRST)):
            self._plan, self._found = [count for count in self.counts for _ in range(2)], {}

    def _try(self, seconds: float) -> None:
        count = self._plan.pop(0)
        best = min(self._found.values(), default=math.inf)
        self._found[count] = min(self._found.get(count, math.inf), seconds)
        if seconds > _WORSE * best and self._plan and self._plan[0] == count:
            self._plan.pop(0)
        if not self._plan:
            self._choose()

    def _choose(self) -> None:
        before = self.count
        fastest = min(self._found, key=lambda count: self._found[count])
        if self._found[fastest] < _BETTER * self._found[before]:
            self.count = fastest
        # Where fewer threads are used than there could be, their cores may become free, which no slow step shows.
        calm = self.count == before == self.counts[0]
        self._pause = min(2 * self._pause, _SECONDS[1]) if calm else _SECONDS[0]
        self._next = _LATE if calm else _SOON
        self._usual, self._slow, self._since = self._found[self.count], 0, 0
        self._tried_at = self.clock()


class _Now:
    """How this process computes, inside `Threads`."""

    most: int | None = None  # threads that may be used; None outside
    native: int | None = None  # threads of the kernels in the step that runs; None: torch's number
    follower: Follower | None = None


def _use(count: int) -> None:
    _Now.native = count


class Threads:
    """`with Threads(2):` or `with Threads("auto"):` computes with these threads, and then with those before."""

    def __init__(self, threads: int | str) -> None:
        self.word = parse_threads(str(threads))
        self.follower: Follower | None = None
        self.before: tuple[Any, ...] = ()

    def __enter__(self) -> Threads:
        self.before = torch.get_num_threads(), _Now.most, _Now.native, _Now.follower
        if self.word != "auto":
            _Now.most, self.follower = int(self.word), None
        elif self.follower is None:
            _Now.most = _Now.most or torch.get_num_threads()
            self.follower = _Now.follower or Follower(_Now.most)
        else:
            _Now.most = self.follower.counts[0]
        _Now.follower = self.follower
        hold()
        return self

    def __exit__(self, *error: object) -> None:
        count, _Now.most, _Now.native, _Now.follower = self.before
        torch.set_num_threads(count)


def set_threads(threads: int | str) -> None:
    """Compute with a number of threads, or with "auto" as many as are fastest at each moment, up to torch's number.

    >>> resnets.engine.set_threads("auto")
    """
    Threads(threads).__enter__()


def count_threads() -> int:
    """How many threads the kernels may use now."""
    return _Now.native or torch.get_num_threads()


def follow(key: Hashable) -> None:
    """A step of the kernels begins; `key` names its kind. What PyTorch does in it has one thread: its threads would
    wait for their next work on the cores that the kernels need.
    """
    if _Now.most is None:
        return
    if _Now.follower is not None:
        _Now.follower.tick(key)
    else:
        _Now.native = _Now.most
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def hold() -> None:
    """A step begins whose result depends on PyTorch's number of threads: it gets all of them."""
    _Now.native = None
    if _Now.most is not None and torch.get_num_threads() != _Now.most:
        torch.set_num_threads(_Now.most)


def do_side_by_side(works: Sequence[Callable[[], None]]) -> None:
    """Do each work on one thread, several at once in a step of the kernels: put the longest first.

    A work is done by one thread on its own, so its bytes do not depend on how many threads there are. Outside such a
    step PyTorch's own threads share each work, one after the other.
    """
    waiting = deque(works)

    def take_turns() -> None:
        while True:
            try:
                work = waiting.popleft()
            except IndexError:
                return
            work()

    helpers = min(count_threads(), len(works)) - 1 if torch.get_num_threads() == 1 else 0
    others = [_start_helpers(os.getpid()).submit(take_turns) for _ in range(helpers)]
    take_turns()
    for other in others:
        other.result()


@cache
def _start_helpers(process: int) -> ThreadPoolExecutor:
    """Threads whose PyTorch operators have one thread each, for as long as a process lives; a fork starts its own."""
    return ThreadPoolExecutor(os.cpu_count(), "resnets-helper", lambda: torch.set_num_threads(1))
