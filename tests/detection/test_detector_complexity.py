"""Multiply-adds of a detector against PyTorch's counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from resnets.detection.complexity import count_multiply_adds, count_step, count_test
from resnets.detection.detector import build_detector
from tests.detection.test_detector import small


def count(run: object) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "preresnet18", "plain18", "vgg16"])
def test_multiply_adds_are_those_of_the_layers(name):
    spec = small(name)
    net = build_detector(spec).eval()
    cost = count_multiply_adds(spec, 96, 128)
    x = torch.zeros(1, 3, 96, 128)
    assert sum(cost.shared) == count(lambda: net.backbone.run_shared(x))
    shared = net.backbone.run_shared(x)
    assert cost.proposals == count(lambda: net.propose(shared))
    pooled = torch.zeros(2, spec.shared_channels, spec.pool_size, spec.pool_size)
    assert 2 * cost.region == count(lambda: net.judge(net.backbone.run_tail(pooled)))
    assert count_test(spec, 96, 128, 10) == sum(cost.shared) + cost.proposals + 10 * cost.region
    assert count_step(spec, 96, 128, 10, 1) < 3 * count_test(spec, 96, 128, 10)
