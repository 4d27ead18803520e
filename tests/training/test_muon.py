"""Muon against its definition."""

import pytest
import tiny
import torch

from resnets.data.synthetic import synthetic
from resnets.engine.native.build import load
from resnets.errors import UserError
from resnets.recipe import recipe_of
from resnets.training.muon import Muon, orthogonal
from resnets.zoo import spec_of


@pytest.mark.parametrize("shape", [(3, 8, 40), (2, 24, 6), (1, 8, 8)])
def test_singular_values_come_near_to_one_and_singular_vectors_stay(shape):
    g = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made = orthogonal(g)
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.3
    assert values.max() < 1.4
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    inner = u.mT @ made @ v.mT  # diagonal in the singular vectors of g
    assert (inner - torch.diag_embed(inner.diagonal(dim1=1, dim2=2))).abs().max() < 1e-6


@pytest.mark.parametrize("shape", [(8, 72), (64, 288), (72, 16), (6, 10)])
def test_kernels_and_pytorch_find_the_same_directions(shape):
    kernels = load().kernels
    if kernels is None:
        pytest.skip("no compiler")
    g = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(orthogonal(g, kernels.multiply), orthogonal(g.double()).float(), rtol=1e-3, atol=1e-4)


def test_filters_step_orthogonally_and_the_rest_as_sgd_does():
    bank, bias = torch.nn.Parameter(torch.ones(4, 2, 3, 3)), torch.nn.Parameter(torch.ones(5))
    other = torch.nn.Parameter(torch.ones(5))
    rest = torch.optim.SGD([other], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    muon = Muon(
        [{"params": [bank], "filters": True, "weight_decay": 0.5, "lr": 0.2}, {"params": [bias], "weight_decay": 0.01}],
        lr=0.1,
        momentum=0.9,
    )
    draw = torch.Generator().manual_seed(0)
    mean, wanted = torch.zeros(4, 18), torch.ones(4, 18)
    for _ in range(3):
        g = torch.randn(4, 2, 3, 3, generator=draw)
        bank.grad, bias.grad, other.grad = g.clone(), torch.arange(5.0), torch.arange(5.0)
        muon.step()
        rest.step()
        mean = 0.9 * mean + 0.1 * g.flatten(1)
        direction = orthogonal((0.1 * g.flatten(1) + 0.9 * mean)[None])[0]
        wanted = wanted * (1 - 0.2 * 0.5) - 0.2 * direction
    torch.testing.assert_close(bank.flatten(1), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(bias, other)


def test_memory_layout_changes_nothing():
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        draw = torch.Generator().manual_seed(0)
        bank = torch.nn.Parameter(torch.randn(8, 4, 3, 3, generator=draw).contiguous(memory_format=layout))
        muon = Muon([{"params": [bank], "filters": True}], lr=0.1, momentum=0.9)
        bank.grad = torch.randn(8, 4, 3, 3, generator=draw).contiguous(memory_format=layout)
        muon.step()
        results.append(bank.detach())
    torch.testing.assert_close(*results)


def test_in_a_trainer_it_takes_the_filters_of_the_units():
    recipe = recipe_of(
        "cifar-paper", optimizer="muon", nesterov=True, muon_lr=0.05, muon_decay=0.1, length="4it", batch=8
    )
    trainer = tiny.trainer_of(spec_of("preresnet20", widths=(8, 8, 8), depth=8), synthetic(40), recipe, 0)
    rest, filters = trainer.optimizer.param_groups
    assert {id(p) for p in filters["params"]} == {
        id(m.weight) for m in trainer.net.units.modules() if isinstance(m, torch.nn.Conv2d)
    }
    assert len(rest["params"]) + len(filters["params"]) == len(list(trainer.net.parameters()))
    trainer.step(0)
    assert filters["lr"] == pytest.approx(0.05 * 0.01 / 0.1)  # the warm-up scales both alike
    assert rest["lr"] == 0.01
    state = trainer.state()
    assert sum(name.startswith("momentum.") for name in state) == len(list(trainer.net.parameters()))


def test_it_needs_nesterov():
    with pytest.raises(UserError, match="nesterov"):
        recipe_of("cifar-paper", optimizer="muon")
