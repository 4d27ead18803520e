"""The frozen form against the network itself, in float64."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from variants import SMALL, VARIANTS, relative, trained

import resnets
from resnets.engine import onednn
from resnets.engine.frozen import Conv, ScaleShift, freeze
from resnets.errors import UserError

SHAPES = ((3, 24, 24), (2, 19, 25), (1, 9, 11))


@pytest.fixture(params=["fused", "plain operators"])
def _operators(request, monkeypatch):
    if request.param == "plain operators":
        monkeypatch.setattr(onednn, "works", lambda: False)
    elif not onednn.works():
        pytest.skip("this build of PyTorch lacks the oneDNN operators")


@pytest.mark.usefixtures("_operators")
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_the_scores_are_the_networks(options):
    net = trained(**options)
    before = copy.deepcopy(net.state_dict())
    frozen, frozen64 = freeze(net), freeze(copy.deepcopy(net).double())
    exact = copy.deepcopy(net).double().eval()
    for batch, height, width in SHAPES:
        x = torch.randn(batch, net.spec.in_channels, height, width)
        given = x.clone()
        with torch.no_grad():
            wanted = exact(x.double())
        assert relative(frozen(x), wanted) < 1e-5
        assert relative(frozen64(x.double()), wanted) < 1e-10
        with torch.inference_mode():
            assert relative(frozen(x), wanted) < 1e-5
        assert torch.equal(x, given)
    assert net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, 0),
        ({"order": "original", "resize": "project"}, 0),
        ({"order": "relu_before_add"}, 0),
        ({"order": "relu_preact"}, 0),
        ({"order": "bn_after_add"}, 6),  # one behind each addition
        ({"order": "full_preact"}, 6),  # one in front of each unit but the first, and the last of the net
        ({"order": "full_preact", "stem_activation": False}, 7),
    ],
)
def test_bn_goes_wherever_the_unit_allows_it(options, kept):
    steps = list(freeze(trained(**options)).modules())
    assert not any(isinstance(step, _BatchNorm) for step in steps)
    assert sum(isinstance(step, ScaleShift) for step in steps) == kept
    assert sum(isinstance(step, nn.ReLU) for step in steps) == (6 if options.get("order") == "relu_preact" else 0)


def test_a_frozen_network_only_tests():
    frozen = freeze(trained())
    assert not frozen.training
    assert not frozen.eval().training
    assert not any(p.requires_grad for p in frozen.parameters())
    assert not frozen(torch.randn(1, 3, 16, 16, requires_grad=True)).requires_grad
    with pytest.raises(UserError, match="only tests"):
        frozen.train()
    with pytest.raises(UserError, match=r"reads batches of shape \(N, 3, height, width\)"):
        frozen(torch.randn(1, 1, 16, 16))
    with pytest.raises(UserError, match="freeze takes a residual network of this package, not Linear"):
        freeze(nn.Linear(1, 1))


def test_it_is_copied_moved_and_kept_like_any_module(tmp_path):
    frozen, x = freeze(trained(order="full_preact")), torch.randn(2, 3, 16, 16)
    wanted = frozen(x)  # and now the weights are packed
    assert torch.equal(copy.deepcopy(frozen)(x), wanted)
    assert torch.equal(pickle.loads(pickle.dumps(frozen))(x), wanted)
    assert relative(copy.deepcopy(frozen).double()(x.double()), wanted) < 1e-5
    torch.save(frozen.state_dict(), tmp_path / "a.pt")
    again = freeze(resnets.create("resnet20", order="full_preact", **SMALL))
    again(x)
    again.load_state_dict(torch.load(tmp_path / "a.pt", weights_only=True))
    assert torch.equal(again(x), wanted)


def test_no_images_have_no_scores():
    assert freeze(trained())(torch.empty(0, 3, 16, 16)).shape == (0, 10)


def test_a_named_network_of_real_width():
    net = resnets.create("preresnet164", num_classes=100, blocks=1, seed=0)
    x = torch.randn(2, 3, 32, 32)
    frozen = freeze(net)
    with torch.no_grad():
        assert relative(frozen(x), net.double().eval()(x.double())) < 1e-5


def test_the_fused_operators_are_left_alone_where_they_fail(monkeypatch):
    def broken(*_args, **_options):
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(onednn, "conv", broken)
    onednn.works.cache_clear()
    assert not onednn.works()
    monkeypatch.setattr(onednn, "conv", lambda x, *_args, **_options: torch.zeros_like(x))
    onednn.works.cache_clear()
    assert not onednn.works()
    onednn.works.cache_clear()


def test_the_fused_operators_read_float32_on_a_cpu_alone():
    assert not onednn.takes(torch.ones(1, dtype=torch.float64))
    assert not onednn.takes(torch.ones(1, device="meta"))
    assert onednn.takes(torch.ones(1)) == onednn.works()


def test_a_convolution_packs_its_weights_for_the_maps_it_sees():
    if not onednn.works():
        pytest.skip("this build of PyTorch lacks the oneDNN operators")
    conv = Conv(nn.Conv2d(3, 4, 3, padding=1))
    conv(torch.randn(2, 3, 8, 8))
    first = conv._packed
    conv(torch.randn(2, 3, 8, 8))
    assert conv._packed is first
    conv(torch.randn(2, 3, 9, 8))
    assert conv._packed is not first


def test_a_convolution_notices_a_change_in_place():
    conv, x = Conv(nn.Conv2d(3, 4, 3, padding=1, bias=False)), torch.randn(2, 3, 8, 8)
    before = conv(x).clone()
    conv.weight.mul_(2)
    torch.testing.assert_close(conv(x), 2 * before)
