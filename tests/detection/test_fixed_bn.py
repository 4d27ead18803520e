"""Fixed BN in training: the gradients of BN in eval mode, by PyTorch in float64 and by the kernels in float32."""

import copy

import pytest
import torch
from torch import nn

from resnets.detection import fixed_bn
from resnets.detection.fixed_bn import Conv, fix_bn, run_convs, run_fixed
from resnets.engine.native.build import load
from resnets.engine.threads import Threads
from resnets.nn import build
from resnets.unit_spec import ORDERS
from resnets.zoo import spec_of
from tests.engine.exactness import spread
from tests.peers import randomize

KERNELS = load().kernels
needs_kernels = pytest.mark.skipif(KERNELS is None, reason=f"no kernels here: {load().how}")
NETS = {
    **{order: ("resnet18", {"order": order}) for order in ORDERS if order != "full_preact"},
    "full_preact": ("preresnet18", {}),
    "bottleneck": ("resnet50", {}),
    "stride on the 3x3": ("resnet50", {"stride_on": "3x3"}),
    "bottleneck, full_preact": ("preresnet50", {}),
    "plain": ("plain18", {}),
    "option A": ("resnet18", {"resize": "pad"}),
}


def make(kind, widths=(16, 24, 32, 40), blocks=1):
    name, fields = NETS[kind]
    net = randomize(build(spec_of(name, widths=widths, blocks=blocks, **fields), seed=0)).eval()
    fix_bn(net)
    return net.to(memory_format=torch.channels_last)


def compute(run, parts, x):
    """The last map, and the gradients of the input and of all filters."""
    x = x.clone(memory_format=torch.channels_last).requires_grad_()
    y = x
    for part in parts:
        y = run(part, y)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    (y * weight.to(y.dtype)).sum().backward()
    filters = [p for part in parts for p in part.parameters() if p.requires_grad]
    return [y.detach(), x.grad, *(p.grad for p in filters)]


def error(found, wanted):
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True))


def plain(module, x):
    return module(x)


@pytest.mark.parametrize("kind", NETS)
def test_fixed_bn_has_the_gradients_of_bn_in_eval_mode(kind):
    net = make(kind, widths=(4, 4, 8, 8)).double()
    x = torch.randn(2, 3, 40, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [net.stem, *net.units, net.last]
    assert error(compute(run_fixed, copy.deepcopy(parts), x), compute(plain, parts, x)) < 1e-12


@needs_kernels
@pytest.mark.parametrize("kind", NETS)
def test_the_kernels_are_as_near_to_float64_as_pytorch(kind):
    """A number next to 0 may fall on either side of a ReLU: of three batches the one in the middle counts."""
    net = make(kind)
    ratios = []
    for seed in range(3):
        x = torch.randn(2, 16, 29, 26, generator=torch.Generator().manual_seed(seed))
        wanted = compute(plain, copy.deepcopy(net).double().units, x.double())
        ours = compute(lambda part, y: run_fixed(part, y, KERNELS), copy.deepcopy(net).units, x)
        theirs = compute(plain, copy.deepcopy(net).units, x)
        ratios.append((spread(ours, wanted) - 5e-7) / spread(theirs, wanted))
    assert sorted(ratios)[1] <= 2


@needs_kernels
@pytest.mark.parametrize("kind", ["original", "full_preact", "bottleneck", "bottleneck, full_preact", "plain"])
def test_units_of_the_papers_are_run_by_the_kernels_alone(kind, monkeypatch):
    """PyTorch computes no convolution of them."""
    net, x = make(kind), torch.randn(1, 16, 20, 18)

    def refuse(*args, **options):
        raise AssertionError

    monkeypatch.setattr(fixed_bn.functional, "conv2d", refuse)
    for unit in net.units:
        x = run_fixed(unit, x, KERNELS)
    with pytest.raises(AssertionError):
        run_fixed(net.units[0], torch.randn(1, 16, 20, 18, dtype=torch.float64), KERNELS)


@needs_kernels
def test_biases_and_frozen_filters():
    """As VGG's: biases are trained. Filters that are not trained get no gradient."""
    layers = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1))
    layers.append(nn.Conv2d(24, 8, 1))
    randomize(layers)
    layers[3].requires_grad_(False)
    x = torch.randn(2, 8, 14, 18, generator=torch.Generator().manual_seed(0))
    wanted = compute(plain, [copy.deepcopy(layers).double()], x.double())
    twin = copy.deepcopy(layers)
    assert error(compute(lambda part, y: run_fixed(part, y, KERNELS), [twin], x), wanted) < 3e-6
    assert twin[3].weight.grad is None
    alone = run_convs([Conv(layers[0], relu=True)], x, KERNELS)
    assert torch.allclose(alone, layers[:2](x), atol=1e-5)


@needs_kernels
def test_the_same_bytes_on_any_number_of_threads():
    found = []
    for threads in (1, 2, 3, 4):
        net = make("bottleneck", widths=(16, 32, 64, 128))
        x = torch.randn(9, 16, 21, 17, generator=torch.Generator().manual_seed(0))
        with Threads(threads):
            found.append(compute(lambda part, y: run_fixed(part, y, KERNELS), net.units, x))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
