"""Memory for maps: exact places, joined when they are free, never two maps in one."""

import gc
import random

import pytest
import torch

from resnets.engine import arena
from resnets.engine.arena import Arena, empty_map

SHAPE = (2, 8, 4, 4)  # 1024 bytes


def addresses(maps):
    return [m.data_ptr() for m in maps]


def idle(room):
    """Bytes that no map has."""
    return sum(size for _, size in [*room.free, *room.returned])


def test_a_map_is_a_dense_float32_tensor_in_channels_last():
    x = Arena(4096).empty(SHAPE)
    assert (x.shape, x.dtype, x.device.type) == (SHAPE, torch.float32, "cpu")
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert not x._is_view()
    assert x.data_ptr() % 64 == 0
    x.fill_(3)
    assert float(x.sum()) == 3 * 256


def test_a_freed_place_between_living_maps_is_used_again():
    room = Arena(4096)
    maps = [room.empty(SHAPE) for _ in range(4)]
    places = addresses(maps)
    assert places == [places[0] + 1024 * i for i in range(4)]
    for i in (2, 0):
        maps[i] = None
        maps[i] = room.empty(SHAPE)
    assert sorted(addresses(maps)) == places
    assert len(room.regions) == 1


def test_the_newest_place_that_fits_is_taken_first():
    room = Arena(8192)
    maps = [room.empty(SHAPE) for _ in range(4)]
    places = addresses(maps)
    maps[0] = maps[2] = None
    assert room.empty(SHAPE).data_ptr() == places[2]


def test_free_neighbours_make_room_for_a_larger_map():
    room = Arena(4096)
    maps = [room.empty(SHAPE) for _ in range(4)]
    places = addresses(maps)
    del maps[1:3]
    assert room.empty((4, 8, 4, 4)).data_ptr() == places[1]
    assert len(room.regions) == 1


def test_everything_comes_back():
    room = Arena(4096)
    maps = [room.empty(SHAPE) for _ in range(9)]
    assert len(room.regions) == 3
    del maps
    room.empty(SHAPE)
    room.empty(SHAPE)
    assert idle(room) == 3 * 4096  # the second was gone at once
    assert len(room.regions) == 3


def test_a_map_larger_than_a_region_gets_its_own():
    room = Arena(4096)
    x = room.empty((8, 8, 8, 8))
    assert x.nbytes == 16384
    assert room.regions[0].size == 16384


def test_a_place_lives_as_long_as_anything_that_reads_it():
    room = Arena(4096)
    x = room.empty(SHAPE)
    part = x[1].detach()
    at = x.data_ptr()
    del x
    assert room.empty(SHAPE).data_ptr() != at
    del part
    assert room.empty(SHAPE).data_ptr() == at


def test_maps_in_cycles_come_back_while_places_are_given_out():
    """The collector may end maps in the middle of anything."""
    room, draw = Arena(1 << 16), random.Random(0)
    living = {}
    for i in range(3000):
        shape = (1, 4, draw.choice((2, 4, 8)), 4)
        x = room.empty(shape)
        x.fill_(i)
        if draw.random() < 0.3:
            knot = [x]
            knot.append(knot)
        else:
            living[i] = x
        if len(living) > 20:
            del living[draw.choice(list(living))]
        assert all(float(m.min()) == float(m.max()) == key for key, m in living.items())
    living.clear()
    del x, knot
    gc.collect()
    room.empty(SHAPE)
    assert idle(room) == sum(region.size for region in room.regions)


def test_gradients_travel_through_maps():
    x = empty_map(SHAPE).normal_().requires_grad_()
    (x * 2).sum().backward()
    assert torch.equal(x.grad, torch.full(SHAPE, 2.0))


@pytest.mark.parametrize("kept", ["0", "1"])
def test_it_can_be_opted_out_of(monkeypatch, kept):
    monkeypatch.setenv("RESNETS_KEEP_MEMORY", kept)
    asked = []
    monkeypatch.setattr(arena, "shared", type("Counted", (Arena,), {"_take": lambda s, n: asked.append(n) or 1 / 0})())
    if kept == "0":
        assert empty_map(SHAPE).is_contiguous(memory_format=torch.channels_last)
    else:
        with pytest.raises(ZeroDivisionError):
            empty_map(SHAPE)
    assert len(asked) == int(kept)
