"""The deviations of layer responses against the layers of the papers' unit, run one by one."""

import pytest
import torch

import resnets
from resnets.analysis.responses import responses

X = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def resolve_augment(name, **changes):
    """A net whose BN statistics and weights are not those of the start."""
    net = resnets.create(name, widths=(4, 8), blocks=2, seed=0, dtype=torch.float64, **changes).train()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        net(X)
    return net.eval()


def deviation(x):
    return float((x - x.mean()).square().mean().sqrt())


@pytest.mark.parametrize(("name", "shortcut"), [("resnet20", 1), ("plain20", 0)])
@torch.no_grad()
def test_after_bn_and_before_relu_and_addition(name, shortcut):
    net = resolve_augment(name)
    with responses(net) as found:
        net(X)
    x = net.stem.act.bn(net.stem.conv(X))
    wanted = [deviation(x)]
    x = x.clamp_min(0)
    for unit in net.units:
        r = unit.residual.act1.bn(unit.residual.conv1(x))
        wanted.append(deviation(r))
        r = unit.residual.act2.bn(unit.residual.conv2(r.clamp_min(0)))
        wanted.append(deviation(r))
        x = (shortcut * unit.resize(x) + r if shortcut else r).clamp_min(0)
    assert len(wanted) == 9, "every weight layer but the classifier"
    assert found == pytest.approx(wanted, rel=1e-9)
    net(X)
    assert len(found) == 9, "the hooks are gone"


@torch.no_grad()
def test_a_convolution_without_bn_behind_it_is_taken_itself():
    net = resolve_augment("preresnet20")
    with responses(net) as found:
        net(X)
    x = net.stem.act.bn(net.stem.conv(X))
    wanted = [deviation(x)]
    x = net.stem(X)
    for unit in net.units:
        before = unit.residual.before(x) if hasattr(unit.residual, "before") else unit.shared(x)
        r = unit.residual.act1.bn(unit.residual.conv1(before))
        wanted += [deviation(r), deviation(unit.residual.conv2(r.clamp_min(0)))]
        x = unit(x)
    assert found == pytest.approx(wanted, rel=1e-9)
