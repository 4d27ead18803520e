"""Draws and orders: pure, fair, the same in every version of every library."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from resnets import counter_rng as module
from resnets.counter_rng import below, draws, order, uniform

WORD = 2**64


def splitmix64(state):
    """One step of the published generator, in whole numbers of Python."""
    z = state % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def reference(purpose, seed, epoch, index):
    key = 0
    for word in (int.from_bytes(purpose.encode(), "little"), seed, epoch):
        key = splitmix64((key ^ word) + module._GAMMA)
    return splitmix64(key + (index + 1) * module._GAMMA)


def test_the_bits_are_splitmix64s():
    states = 1234567 + np.arange(1, 6, dtype=np.uint64) * np.uint64(module._GAMMA)
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert module._mix(states).tolist() == published


@given(
    st.sampled_from(["order", "augment"]),
    st.integers(-5, 2**64),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 2**40)),
)
@settings(deadline=None, database=None)
def test_draws_equal_the_reference(purpose, seed, epoch, index):
    found = draws(purpose, seed, epoch, np.array(index, np.int64))
    assert found.tolist() == [reference(purpose, seed, epoch, i) for i in index]


def test_draws_are_fair_and_unrelated():
    index = np.arange(100_000)
    bits = draws("x", 0, 0, index)
    assert len(np.unique(bits)) == len(bits)
    for k in range(64):
        assert abs((bits >> np.uint64(k) & np.uint64(1)).mean() - 0.5) < 0.01
    values = uniform(bits)
    assert 0 <= values.min() < values.max() < 1
    for other in (draws("x", 0, 1, index), draws("x", 1, 0, index), draws("y", 0, 0, index), np.roll(bits, 1)):
        assert abs(np.corrcoef(values, uniform(other))[0, 1]) < 0.02
    counts = np.bincount(below(bits, 81), minlength=81)
    expected = len(bits) / 81
    assert ((counts - expected) ** 2 / expected).sum() < 150  # chi-square of 80 degrees: 80, deviation 13


def test_the_order_will_not_change_with_a_library():
    assert order(12, seed=0, epoch=0).tolist() == [11, 5, 4, 8, 1, 2, 0, 7, 9, 6, 3, 10]
    assert order(12, seed=0, epoch=1).tolist() == [7, 1, 9, 4, 6, 2, 11, 5, 8, 10, 0, 3]


@given(st.integers(1, 300), st.integers(0, 2**40), st.integers(0, 1000))
@settings(deadline=None, database=None)
def test_order_is_a_permutation_and_pure(n, seed, epoch):
    assert sorted(order(n, seed, epoch)) == list(range(n))
    assert np.array_equal(order(n, seed, epoch), order(n, seed, epoch))


def test_every_epoch_and_seed_has_its_own_order():
    orders = {tuple(order(50, seed, epoch)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25
