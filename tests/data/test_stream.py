"""Which images each step sees: properties over sizes of the set, of the batch, and numbers of processes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from resnets.counter_rng import order
from resnets.data.batch_order import BatchOrder, _order
from resnets.errors import UserError
from resnets.training.distributed import Workers

streams = st.builds(BatchOrder, n=st.integers(1, 60), size=st.integers(1, 150), seed=st.integers(0, 2**40))
steps = st.integers(0, 500)
untimed = settings(deadline=None, database=None)  # the machine may be busy


def flat(pieces):
    """(epoch, index) of every image, in order."""
    return [(epoch, int(i)) for epoch, index in pieces for i in index]


@untimed
@given(streams, st.integers(1, 5))
def test_each_image_comes_exactly_once_an_epoch(stream, epochs):
    needed = -(-epochs * stream.n // stream.size)
    seen = [pair for step in range(needed) for pair in flat(stream.batch(step))]
    for epoch in range(epochs):
        assert sorted(i for e, i in seen if e == epoch) == list(range(stream.n))


@untimed
@given(streams, steps)
def test_every_batch_is_full_and_goes_on_where_the_last_one_ended(stream, step):
    batch = flat(stream.batch(step))
    assert len(batch) == stream.size
    places = range(step * stream.size, (step + 1) * stream.size)
    orders = {e: order(stream.n, stream.seed, e) for e in {p // stream.n for p in places}}
    assert batch == [(p // stream.n, int(orders[p // stream.n][p % stream.n])) for p in places]


@untimed
@given(streams, steps, st.integers(1, 9))
def test_the_shares_of_all_processes_make_up_the_batch_in_order(stream, step, world):
    shares = [stream.batch(step, Workers(rank, world).share(stream.size)) for rank in range(world)]
    assert [pair for share in shares for pair in flat(share)] == flat(stream.batch(step))
    sizes = [len(flat(share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@untimed
@given(streams, steps)
def test_each_piece_lies_in_one_epoch_and_epochs_go_up(stream, step):
    epochs = [epoch for epoch, _ in stream.batch(step)]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
    assert all(0 < len(index) <= stream.n for _, index in stream.batch(step))


@untimed
@given(streams, steps)
def test_a_stream_may_begin_anywhere(stream, step):
    _order.cache_clear()
    fresh = flat(BatchOrder(stream.n, stream.size, stream.seed).batch(step))
    for before in range(max(step - 3, 0), step):
        stream.batch(before)
    assert flat(stream.batch(step)) == fresh


@untimed
@given(streams, steps)
def test_steps_are_numbered_within_the_epoch_in_which_they_begin(stream, step):
    epoch = stream.epoch(step)
    assert epoch == stream.batch(step)[0][0]
    if step:
        begins_epoch = epoch > stream.epoch(step - 1)
        assert stream.place(step) == (0 if begins_epoch else stream.place(step - 1) + 1)
    assert stream.first(epoch) <= step
    assert stream.epoch(stream.first(epoch)) >= epoch


@untimed
@given(streams, st.integers(1, 8))
def test_the_steps_of_the_epochs_add_up(stream, epochs):
    assert sum(stream.steps(epoch) for epoch in range(epochs)) == stream.first(epochs)
    assert all(stream.steps(epoch) <= stream.steps(0) for epoch in range(epochs))  # the first epoch is a longest one


def test_a_batch_larger_than_the_set_holds_whole_epochs():
    pieces = BatchOrder(10, 35, 3).batch(0)
    assert [(epoch, len(index)) for epoch, index in pieces] == [(0, 10), (1, 10), (2, 10), (3, 5)]
    assert all(sorted(index.tolist()) == list(range(10)) for _, index in pieces[:3])


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(order(50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_places_in_an_epoch_are_fair_to_every_image():
    """Over 2,000 epochs of 8 images each image comes first about as often: chi-squared below its 99.9 % point."""
    first = np.bincount([order(8, 5, epoch)[0] for epoch in range(2000)], minlength=8)
    assert ((first - 250) ** 2 / 250).sum() < 24.3


def test_indices_are_int64_tensors():
    assert all(index.dtype == torch.int64 for _, index in BatchOrder(10, 4, 0).batch(2))


@pytest.mark.parametrize(("n", "size"), [(0, 4), (4, 0), (-1, 1)])
def test_what_cannot_be_had_in_batches_is_refused(n, size):
    with pytest.raises(UserError, match=rf"{n} images cannot be split into batches of {size}\."):
        BatchOrder(n, size, 0)
