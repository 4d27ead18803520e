"""`--every N`: the signal is measured along training, and the training does not notice."""

import copy

import pytest
import tiny
import torch

from resnets import load
from resnets.counter_rng import order
from resnets.data.augment import Normalize
from resnets.nn import build
from resnets.recipe import recipe_of
from resnets.zoo import spec_of

JOBS = {
    "kernels": {"network": {"widths": (8, 16, 16), "blocks": 2}, "memory": "min"},
    "dropout": {"model": "resnet20", "network": {**tiny.NETWORK, "shortcut": "dropout"}, "ema": 0.9},
    "plain": {"engine": "plain", "validation": 40, "curve": True},
}


@pytest.mark.parametrize("name", JOBS)
def test_the_run_ends_with_the_same_bytes(tmp_path, name):
    without = tiny.train_tiny(tmp_path / "without", **JOBS[name])
    run = tiny.train_tiny(tmp_path / "with", every=5, **JOBS[name])
    assert [line["step"] for line in run.metrics() if line["kind"] == "signal"] == [0, 5, 10, 12]
    assert [line for line in tiny.curve(run) if line["kind"] != "signal"] == tiny.curve(without)
    assert run.result == without.result
    for tensor, wanted in zip(tiny.weights(run).values(), tiny.weights(without).values(), strict=True):
        assert tensor.numpy().tobytes() == wanted.numpy().tobytes()
    assert run.curves.keys() == without.curves.keys(), "curves draw errors alone"


def test_the_numbers_are_those_of_the_network_at_that_step(tmp_path, images):
    run = tiny.train_tiny(tmp_path, every=100)
    lines = [line for line in run.metrics() if line["kind"] == "signal"]
    x = Normalize.of(images, run.identity.recipe.normalize)(
        torch.from_numpy(images.train_images[order(256, 0, 0)[:32]])
    )
    for line, net in zip(lines, (build(run.identity.spec, seed=0), load(run.weights)), strict=True):
        net.train().double()
        with torch.no_grad():
            sizes = [float(m.square().mean().sqrt()) for m in net.forward_units(x.double())]
        # of one unit a stage the last two change the size: three sizes with maps 0 to 1, 2, 3
        assert line["rms"] == pytest.approx([sizes[1], *sizes[2:]], rel=1e-4)
        assert line["growth"] == pytest.approx([sizes[1] / sizes[0], 1, 1], rel=1e-4)
        assert (line["product"], line["truncated"]) == ([1, 1, 1], [None] * 3)


@pytest.mark.parametrize("channels_last", [False, True])
def test_measuring_leaves_no_trace(images, channels_last):
    recipe = recipe_of("cifar-paper", batch=48, channels_last=channels_last)
    trainer = tiny.trainer_of(spec_of("resnet20", **tiny.NETWORK, shortcut="dropout"), images, recipe, 0)
    trainer.step(0)
    before = copy.deepcopy(trainer.state()), torch.random.get_rng_state()
    gradients = [p.grad.clone() for p in trainer.net.parameters()]
    modes = [module.training for module in trainer.net.modules()]
    trainer.task.measure_signal(trainer.net)
    torch.testing.assert_close((trainer.state(), torch.random.get_rng_state()), before, rtol=0, atol=0)
    torch.testing.assert_close([p.grad for p in trainer.net.parameters()], gradients, rtol=0, atol=0)
    assert [module.training for module in trainer.net.modules()] == modes
