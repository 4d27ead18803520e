"""Masks of dropout are PyTorch's, number by number, and so is its generator afterwards."""

import pytest
import torch

from resnets.engine.native.build import load
from resnets.engine.native.masks import _draws_as_pytorch, draw_mask

KERNELS = load().kernels
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no kernels here: {load().how}")
LAST = torch.channels_last


def draw_both(x, keep, prepare=lambda: None):
    """A mask by PyTorch and by the kernels from the same state, and the states behind them."""
    found = []
    for draw in (lambda: torch.empty_like(x).bernoulli_(keep), lambda: draw_mask(KERNELS, x, keep)):
        torch.manual_seed(3)
        prepare()
        found.append((draw(), torch.get_rng_state()))
    return found


def test_this_release_of_pytorch_is_known():
    assert _draws_as_pytorch(KERNELS)


@pytest.mark.parametrize("count", [1, 2, 311, 312, 313, 623, 624, 625, 10007])
@pytest.mark.parametrize("drawn", [0, 1, 5, 622, 623, 624])
def test_any_number_from_any_state(count, drawn):
    for keep in (0.5, 0.1, 0.999, 0.0, 1.0):
        (mask, state), (other, other_state) = draw_both(torch.empty(count), keep, lambda: torch.rand(drawn))
        assert torch.equal(mask, other)
        assert torch.equal(state, other_state)


@pytest.mark.parametrize("layout", [LAST, torch.contiguous_format])
def test_maps_in_both_orders_of_memory(layout):
    x = torch.empty(4, 16, 5, 7).contiguous(memory_format=layout)
    (mask, state), (other, other_state) = draw_both(x, 0.5)
    assert torch.equal(mask, other)
    assert mask.stride() == other.stride()
    assert torch.equal(state, other_state)


def test_maps_with_gaps_and_without_numbers_are_pytorchs():
    for x in (torch.empty(4, 16, 5, 7)[:, :, :, ::2].permute(3, 0, 1, 2), torch.empty(0, 8, 4, 4)):
        (mask, state), (other, other_state) = draw_both(x, 0.5)
        assert torch.equal(mask, other)
        assert torch.equal(state, other_state)


def test_the_next_normal_numbers_are_kept():
    (_, state), (_, other) = draw_both(torch.empty(9), 0.5, lambda: torch.randn(3))
    assert torch.equal(state, other)
    torch.set_rng_state(other)
    after = torch.randn(5)
    torch.set_rng_state(state)
    assert torch.equal(after, torch.randn(5))


def test_kernels_that_draw_otherwise_are_not_used():
    class Others:
        def draw_mask(self, state, mask, keep):
            mask.fill_(1.0)

    torch.manual_seed(3)
    expected = torch.empty(50).bernoulli_(0.5)
    torch.manual_seed(3)
    assert torch.equal(draw_mask(Others(), torch.empty(50), 0.5), expected)
