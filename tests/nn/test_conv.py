"""Strided 1x1 convolutions of few channels, whose gradient PyTorch writes beyond its memory in channels_last."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import resnets
from resnets.nn.conv import Subsampled, conv

# Every place where a net can have one: options B and C, a bottleneck with its stride on the 1x1, a shared activation.
STEPS = """
import torch, resnets
from resnets.engine import prepare
from resnets.unit_spec import Conv1x1
nets = (
    {"resize": "project"}, {"resize": "project", "order": "full_preact"}, {"shortcut": Conv1x1()},
    {"kernels": "bottleneck", "stride_on": "1x1", "order": "full_preact", "widths": (1, 1, 1)},
)
for changes in nets:
    for how in ({"engine": "plain"}, {"memory": "fast"}, {"memory": "lean"}):
        net = resnets.create("resnet20", seed=0, **{"widths": (4, 6, 8), "blocks": 1, **changes})
        net.to(memory_format=torch.channels_last)
        model = prepare(net, **how)
        for _ in range(4):
            x = torch.randn(32, 3, 16, 16).contiguous(memory_format=torch.channels_last)
            model(x).sum().backward()
            others = [torch.randn(100) for _ in range(50)]  # whose places would be written over
print("whole")
"""


def test_training_thin_nets_leaves_the_heap_whole():
    """In a process of its own, which a broken heap would end."""
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "whole"), done.stderr


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_the_strided_convolution(side, layout):
    ours = conv(5, 6, 1, 2).double()
    assert isinstance(ours, Subsampled)
    theirs = nn.Conv2d(5, 6, 1, 2, bias=False).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 5, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours_x, theirs_x = x.clone(memory_format=layout).requires_grad_(), x.clone().requires_grad_()
    found, wanted = ours(ours_x), theirs(theirs_x)
    torch.testing.assert_close(found, wanted)
    for out in (found, wanted):
        out.square().sum().backward()
    torch.testing.assert_close(ours_x.grad, theirs_x.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_the_papers_networks_have_none():
    for name in ("resnet20", "preresnet164", "resnet50"):
        with torch.device("meta"):
            net = resnets.ResNet(resnets.spec_of(name, resize="project", stride_on="1x1"))
        assert not [m for m in net.modules() if isinstance(m, Subsampled)]
    assert not isinstance(conv(4, 8, 3, 2), Subsampled)
    assert not isinstance(conv(4, 8, 1, 1), Subsampled)
