"""Pictures that are decoded at the same time wait for each other, and none waits for ever."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from resnets.data import budget as module
from resnets.data.budget import SHARES, Budget, room_for


@pytest.mark.parametrize("locks", [threading, multiprocessing])
def test_no_more_is_taken_than_there_is(locks):
    budget, lock = Budget(locks), threading.Lock()
    taken, most = 0, 0

    def work(shares):
        nonlocal taken, most
        with budget.take(shares):
            with lock:
                taken += min(shares, SHARES)
                most = max(most, taken)
            with lock:
                taken -= min(shares, SHARES)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [1, 5, 16, 40, 3, 9, 2, 16] * 25))
    assert 0 < most <= SHARES


def test_the_largest_goes_alone_and_small_ones_never_wait(monkeypatch):
    budget = Budget()
    monkeypatch.setattr(module, "_budget", budget)
    with room_for((1 << 14, 1 << 13)):
        assert not budget.shares.acquire(blocking=False)
        with room_for((1024, 1024)):
            pass
    assert budget.shares.acquire(blocking=False)


def test_room_is_given_back_after_an_error(monkeypatch):
    budget = Budget()
    monkeypatch.setattr(module, "_budget", budget)
    for _ in range(SHARES + 1):
        with pytest.raises(ZeroDivisionError), room_for((4000, 3000)):
            raise ZeroDivisionError
    assert all(budget.shares.acquire(blocking=False) for _ in range(SHARES))
