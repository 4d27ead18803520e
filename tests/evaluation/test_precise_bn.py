"""BN's statistics taken anew, against means in float64."""

import pytest
import torch
from torch import nn

import resnets
from resnets.evaluation.precise_bn import precise_bn


def batches(count=4, size=10, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, 8, 8, generator=draw) * (i + 1) for i in range(count)]


def test_one_layer_gets_the_plain_means_over_the_batches():
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, momentum=0.3))
    precise_bn(net, iter(batches()))
    with torch.no_grad():
        maps = [nn.functional.conv2d(x.double(), net[0].weight.double(), net[0].bias.double()) for x in batches()]
    mean = torch.stack([m.mean((0, 2, 3)) for m in maps]).mean(0)
    var = torch.stack([m.var((0, 2, 3), unbiased=True) for m in maps]).mean(0)
    torch.testing.assert_close(net[1].running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net[1].running_var.double(), var, rtol=1e-5, atol=1e-6)


def test_what_the_statistics_were_before_does_not_matter():
    nets = [resnets.create("preresnet20", blocks=1, widths=(4, 8, 8), seed=1) for _ in range(2)]
    for module in nets[1].modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.fill_(7)
            module.running_var.fill_(9)
    for net in nets:
        precise_bn(net, batches())
    one, other = (net.state_dict() for net in nets)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["last.bn.running_mean"], torch.zeros(8))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("momentum", [0.1, 0.25])
def test_momentum_mode_and_weights_stay(training, momentum):
    net = resnets.create("resnet20", blocks=1, widths=(4, 8, 8), bn_momentum=momentum).train(training)
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    precise_bn(net, batches())
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {momentum}
    assert all(module.training is training for module in net.modules())
    assert all(torch.equal(before[name], parameter) for name, parameter in net.named_parameters())


def test_momentum_and_mode_are_restored_after_a_failure():
    net = resnets.create("resnet20", blocks=1, widths=(4, 8, 8)).eval()
    with pytest.raises(resnets.UserError):
        precise_bn(net, [torch.zeros(2, 1, 8, 8)])
    assert {m.momentum for m in net.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}
    assert not any(module.training for module in net.modules())


def test_a_dropout_shortcut_does_what_it_does_in_testing():
    """So nothing is drawn, and the statistics are those of the net that is tested."""
    nets = [resnets.create("resnet20", blocks=1, widths=(4, 8, 8), shortcut="dropout", seed=2) for _ in range(2)]
    for seed, net in enumerate(nets):
        torch.manual_seed(seed)
        precise_bn(net, batches())
    one, other = (net.state_dict() for net in nets)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_net_without_bn_is_left_alone():
    net = nn.Conv2d(3, 4, 3)

    def refuse():
        raise AssertionError("no image is needed")
        yield

    precise_bn(net, refuse())
    assert net.training


def test_synchronised_bn_is_bn_too():
    plain = nn.Sequential(nn.BatchNorm2d(3))
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(3)))
    for net in (plain, synchronised):
        precise_bn(net, batches())
    torch.testing.assert_close(synchronised.state_dict(), plain.state_dict())
    assert plain[0].num_batches_tracked == 4
