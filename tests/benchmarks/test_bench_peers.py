"""The contestants compute what we compute."""

import pytest
import torch

from benchmarks import peers
from peers import randomize
from resnets.nn import build
from resnets.weights.layouts import TIMM_V2, TORCHVISION
from resnets.zoo import spec_of

NETS = ["preresnet20", "resnet20", "preresnet164", "resnet164", "preresnet18", "resnet18"]


@pytest.fixture(autouse=True, scope="module")
def _timm():
    try:
        peers.import_timm()
    except ModuleNotFoundError as error:
        pytest.skip(f"timm is not installed ({error})")


def count(net):
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize("name", NETS)
def test_timm_computes_our_function_from_our_weights(name):
    spec = peers.same(name)
    ours = randomize(build(spec)).double()
    theirs = peers.build("timm", spec).double()
    layout = TIMM_V2 if peers.preactivated(spec) else TORCHVISION
    names, tensors = layout.names(spec, ours.state_dict()), ours.state_dict()
    theirs.load_state_dict({names[k]: v.reshape(layout.shape(k, v.shape)) for k, v in tensors.items()}, strict=True)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for training in (True, False):
        out, expected = ours.train(training)(x), theirs.train(training)(x)
        assert (out - expected).abs().max() <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize("name", ["preresnet110", "resnet110", "preresnet164", "preresnet1001", "resnet1202"])
def test_parameters_are_as_many_as_ours_up_to_the_shortcuts(name):
    spec = peers.same(name)
    assert count(peers.build("timm", spec)) == count(build(spec, device="meta"))
    projections = 0
    if spec_of(name).resize == "pad":  # 16 to 32, 32 to 64, with BN where the order has it
        projections = 16 * 32 + 32 * 64 + (0 if peers.preactivated(spec) else 2 * (32 + 64))
    assert count(build(spec, device="meta")) == count(build(spec_of(name), device="meta")) + projections


def test_torchvision_says_what_it_does_not_have():
    with pytest.raises(ValueError, match="torchvision has no preresnet50"):
        peers.build("torchvision", peers.same("preresnet50"))
