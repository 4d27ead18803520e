"""Every memory mode computes what the network computes: the same outputs, gradients and statistics."""

import copy

import pytest
import torch
from exactness import batch, error, exact, gradients
from torch import nn
from torch.nn import functional
from variants import VARIANTS, trained

from resnets.engine import MODES, prepare
from resnets.engine import runners as plan
from resnets.engine.native.build import Loaded
from resnets.unit_spec import parse_shortcut

MORE = {
    "relu_preact-conv1x1": {"order": "relu_preact", "shortcut": parse_shortcut("conv1x1")},
    "bn_after_add-gate": {"order": "bn_after_add", "shortcut": parse_shortcut("exclusive_gate:-1")},
    "relu_before_add-dropout": {"order": "relu_before_add", "shortcut": parse_shortcut("dropout:0.3")},
    "shared at every pooling": {"order": "full_preact", "share_activation": "resize", "resize": "pad_pool"},
}
EVERY = {**VARIANTS, **MORE}


@pytest.fixture(autouse=True)
def _pytorch_alone(monkeypatch):
    """The kernels have tests of their own: test_native.py."""
    monkeypatch.setattr(plan, "load", lambda: Loaded(None, "left out by the test"))


@pytest.mark.parametrize("variant", EVERY)
def test_gradients_are_as_near_to_float64_as_those_of_plain_pytorch(variant):
    net = trained(**EVERY[variant])
    plain, true = copy.deepcopy(net), exact(net)
    eager = gradients(plain, plain)
    for mode in MODES:
        twin = copy.deepcopy(net)
        for ours, theirs, wanted in zip(gradients(prepare(twin, memory=mode), twin), eager, true, strict=True):
            assert error(ours, wanted) <= 2 * error(theirs, wanted) + 1e-6, mode
        for (key, ours), theirs in zip(twin.state_dict().items(), plain.state_dict().values(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=f"{mode}: {key}")


@pytest.mark.parametrize("mode", MODES)
def test_statistics_are_updated_once_a_step(mode):
    net = trained(order="full_preact")
    before = int(net.units[1].residual.act1.bn.num_batches_tracked)
    for _ in range(2):
        gradients(prepare(net, memory=mode), net)
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {int(norm.num_batches_tracked) for norm in norms} == {before + 2}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shortcut", ["dropout:0.5", "dropout:0.5:true"])
def test_dropout_masks_are_drawn_the_same_and_the_generator_moves_the_same(mode, shortcut):
    net = trained(shortcut=parse_shortcut(shortcut))
    twin = copy.deepcopy(net)
    gradients(twin, twin)
    after = torch.random.get_rng_state()
    gradients(prepare(net, memory=mode), net)
    assert torch.equal(torch.random.get_rng_state(), after)
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_channels_last_gives_the_same(mode):
    net = trained(order="full_preact", resize="project", widths=(8, 16, 16))  # oneDNN fails with 1x1/2 and odd widths
    twin = copy.deepcopy(net).to(memory_format=torch.channels_last)
    ours = gradients(prepare(twin, memory=mode), twin)
    for a, b in zip(ours, gradients(net, net), strict=True):
        assert error(a, b) < 1e-4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["original", "full_preact"])
def test_bf16_autocast_gives_what_it_gives_the_plain_network(mode, order):
    net = trained(order=order, resize="project")
    twin = copy.deepcopy(net)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = gradients(prepare(net, memory=mode), net), gradients(twin, twin)
    assert ours[0].dtype == theirs[0].dtype == torch.bfloat16
    for a, b in zip(ours, theirs, strict=True):
        assert error(a, b) < 0.05
        assert a.dtype == b.dtype


@pytest.mark.parametrize("mode", MODES)
def test_frozen_parameters_stay_frozen(mode):
    net = trained(order="full_preact")
    twin = copy.deepcopy(net)
    for model in (net, twin):
        model.stem.requires_grad_(False)
        model.units[1].requires_grad_(False)
        model.units[2].residual.conv2.weight.requires_grad_(False)
        model.units[3].eval()  # its statistics too
        model.units[3].requires_grad_(False)
    x, y = batch(net)
    for model in (prepare(net, memory=mode), twin):
        functional.cross_entropy(model(x), y).backward()
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert int(net.units[3].residual.act1.bn.num_batches_tracked) == 3


def test_modes_keep_less_and_less():
    """What autograd keeps, counted storage by storage."""
    kept = {}
    for order in ("original", "full_preact"):
        for mode in MODES:
            net = trained(order=order, kernels=(1, 3, 1), blocks=6)
            x, _ = batch(net)
            storages = {}
            own = {p.untyped_storage().data_ptr() for p in (*net.parameters(), *net.buffers())}

            def count(tensor, storages=storages):
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                out = prepare(net, memory=mode)(x)
            kept[order, mode] = sum(size for place, size in storages.items() if place not in own)
            del out
    assert kept["full_preact", "lean"] < 0.55 * kept["full_preact", "fast"]
    assert kept["original", "lean"] < 0.85 * kept["original", "fast"]
