"""Parameters and multiply-adds against the papers, the peers' counts, and a count over the whole net."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import resnets
from resnets import complexity, spec_of

KNOWN = json.loads((Path(__file__).parents[1] / "golden" / "parameters.json").read_text())


@pytest.mark.parametrize("family", ["resnet", "preresnet"])
@pytest.mark.parametrize("depth", KNOWN["cifar10"])
def test_parameters_of_two_layer_cifar_nets(family, depth):
    assert complexity(spec_of(f"{family}{depth}")).parameters == KNOWN["cifar10"][depth]


@pytest.mark.parametrize("name", KNOWN["bottleneck"])
@pytest.mark.parametrize("classes", ["10", "100"])
def test_parameters_of_cifar_bottlenecks(name, classes):
    assert complexity(spec_of(name, num_classes=int(classes))).parameters == KNOWN["bottleneck"][name][classes]


@pytest.mark.parametrize("name", KNOWN["imagenet"])
def test_parameters_of_imagenet_nets(name):
    assert complexity(spec_of(name)).parameters == KNOWN["imagenet"][name]


@pytest.mark.parametrize(("name", "giga"), [("resnet50", 3.8), ("resnet152", 11.3)])
def test_multiply_adds_of_the_v1_paper(name, giga):
    """The v1 paper's nets have the stride on the first 1x1. It prints one digit: 3.86 became 3.8, 11.28 became 11.3."""
    measured = complexity(spec_of(name, stride_on="1x1")).multiply_adds / 1e9
    assert measured == pytest.approx(giga, abs=0.06)


@pytest.mark.parametrize("name", resnets.list_models())
def test_the_parts_add_up_to_the_whole_net(name):
    """A unit of each shape is measured once; here every unit of the net is built and run."""
    net = resnets.create(name, device="meta").eval()
    total = 0

    def count(module: nn.Module, inputs: tuple[torch.Tensor], out: torch.Tensor) -> None:
        nonlocal total
        total += out.numel() * module.weight.numel() // module.weight.shape[0]

    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    with torch.no_grad():
        net(torch.empty(1, 3, net.spec.input_size, net.spec.input_size, device="meta"))
    cost = complexity(net)
    assert cost.parameters == sum(p.numel() for p in net.parameters())
    assert cost.multiply_adds == total
    assert sum(s.units for s in cost.stages) == len(net.units)


def test_a_gate_costs_its_convolution():
    plain, gated = (complexity(spec_of("resnet20", shortcut=s)) for s in ("identity", "shortcut_gate:-6"))
    assert gated.parameters - plain.parameters == sum(3 * (w * w + w) for w in (16, 32, 64))


def test_size_and_its_limit():
    assert complexity(spec_of("resnet50"), 320).stages[-2].output == (2048, 10, 10)
    assert complexity(spec_of("resnet50"), (224, 320)).stages[-2].output == (2048, 7, 10)
    with pytest.raises(resnets.UserError, match="at least 17x17 pixels"):
        complexity(spec_of("resnet50"), 16)
