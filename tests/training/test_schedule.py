"""The learning rate and the image side, step by step."""

import math
from itertools import pairwise

import pytest

from resnets.errors import UserError
from resnets.recipe import Recipe, recipe_of
from resnets.training.schedule import Schedule

CIFAR = 50_000


def schedule(images=CIFAR, **fields):
    return Schedule(Recipe("test", **fields), images)


PAPER = {
    0: 0.01,
    1: 0.01,
    399: 0.01,
    400: 0.1,
    401: 0.1,
    16_000: 0.1,
    31_999: 0.1,
    32_000: 0.01,
    32_001: 0.01,
    47_999: 0.01,
    48_000: 0.001,
    63_999: 0.001,
}


@pytest.mark.parametrize(("step", "lr"), PAPER.items())
def test_cifar_paper_has_the_papers_rate_at_every_turn(step, lr):
    assert Schedule(recipe_of("cifar-paper"), CIFAR).lr(step) == pytest.approx(lr, rel=1e-12)


def test_cifar_paper_has_64000_steps_and_changes_its_rate_three_times():
    paper = Schedule(recipe_of("cifar-paper"), CIFAR)
    rates = [paper.lr(step) for step in range(paper.total)]
    assert len(rates) == 64_000
    assert [i for i in range(1, len(rates)) if rates[i] != rates[i - 1]] == [400, 32_000, 48_000]


def test_cifar_v1_counts_in_iterations_whatever_is_held_out():
    v1, paper = (Schedule(recipe_of(name), images) for name, images in (("cifar-v1", 45_000), ("cifar-paper", CIFAR)))
    assert v1.total == paper.total
    assert all(v1.lr(step) == paper.lr(step) for step in PAPER)


@pytest.mark.parametrize(
    ("step", "lr"),
    [(0, 0.1), (62_499, 0.1), (62_500, 0.01), (94_531, 0.01), (94_532, 0.001), (156_249, 0.001)],
)
def test_cifar_paper_b64_drops_after_80_and_121_of_200_epochs_without_a_warm_up(step, lr):
    b64 = Schedule(recipe_of("cifar-paper-b64"), CIFAR)
    assert b64.total == 156_250
    assert b64.lr(step) == pytest.approx(lr, rel=1e-12)


def test_cosine_goes_from_the_rate_to_its_end_by_half_a_wave():
    cosine = schedule(schedule="cosine", length="1000it", warmup="0it", lr=0.4, final_lr=0.1)
    assert cosine.lr(0) == 0.4
    assert cosine.lr(500) == pytest.approx(0.4 * 0.55)
    assert cosine.lr(999) == pytest.approx(0.04, rel=1e-4)
    for step in (1, 250, 777):
        assert cosine.lr(step) == pytest.approx(0.04 + 0.36 * 0.5 * (1 + math.cos(math.pi * step / 1000)))


def test_cosine_begins_after_the_warm_up():
    cosine = schedule(schedule="cosine", length="1000it", warmup="100it", warmup_lr=0.02, lr=0.4)
    assert {cosine.lr(step) for step in range(100)} == {0.02}
    assert cosine.lr(100) == 0.4
    assert cosine.lr(550) == pytest.approx(0.2)


@pytest.mark.parametrize("peak", [0.0, 0.25, 0.5, 1.0])
def test_onecycle_rises_to_its_peak_and_falls_to_its_end(peak):
    cycle = schedule(schedule="onecycle", length="1000it", warmup="0it", lr=0.3, peak=peak)
    rates = [cycle.lr(step) for step in range(1000)]
    top = min(int(1000 * peak), 999)
    assert max(rates) == rates[top] == pytest.approx(0.3)
    assert all(a <= b + 1e-15 for a, b in pairwise(rates[: top + 1]))
    assert all(a >= b for a, b in pairwise(rates[top:]))
    assert all(0 < rate <= 0.3 for rate in rates)
    if 0 < peak < 1:
        assert rates[0] == pytest.approx(0.3 / (1000 * peak))  # one step up the line, not a lost step at 0
        assert rates[-1] == pytest.approx(0.3 / (1000 * (1 - peak)))


def test_onecycle_ends_at_a_share_of_its_rate():
    cycle = schedule(schedule="onecycle", length="1000it", warmup="0it", lr=0.3, peak=0.2, final_lr=0.5)
    assert cycle.lr(200) == pytest.approx(0.3)
    assert cycle.lr(999) == pytest.approx(0.15, rel=2e-3)


def test_a_constant_rate_is_constant():
    constant = schedule(schedule="constant", length="2ep", warmup="0it", lr=0.05)
    assert {constant.lr(step) for step in range(constant.total)} == {0.05}


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_each_milestone_multiplies_by_gamma(gamma):
    steps = schedule(length="10it", warmup="0it", milestones="2it,5it,5it", lr=1.0, gamma=gamma)
    assert [steps.lr(step) for step in range(7)] == [1, 1, gamma, gamma, gamma, gamma**3, gamma**3]


def test_sizes_begin_at_their_shares_of_the_steps():
    sized = schedule(length="100it", sizes="16@0,24@0.5,32@0.8")
    sides = [sized.size(step) for step in range(100)]
    assert sides == [16] * 50 + [24] * 30 + [32] * 20


def test_a_share_between_two_steps_begins_with_the_later():
    sized = schedule(length="10it", sizes="16@0,32@0.55")
    assert [sized.size(step) for step in range(10)] == [16] * 6 + [32] * 4


def test_no_sizes_leave_the_images_as_they_are():
    assert schedule().size(0) is None


def test_a_training_without_a_step_is_refused():
    with pytest.raises(UserError, match=r"a training of 0it has no step; give a longer one\."):
        schedule(length="0it")


def test_a_warm_up_that_never_ends_is_told():
    (sentence,) = Schedule(recipe_of("cifar-paper", length="100it"), 50_000).notices()
    assert sentence.startswith("the warm-up of 400 steps does not end within the 100 steps of the training")
    assert Schedule(recipe_of("cifar-paper"), 50_000).notices() == []
