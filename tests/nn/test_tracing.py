"""torch.fx follows every kind of network, so that tools that rewrite or cut graphs work on them."""

import pytest
import torch
from torch import fx

import resnets
from resnets import UserError
from resnets.spec import RESIZES
from resnets.unit_spec import KERNELS, ORDERS, SHORTCUTS

SMALL = {"blocks": 1, "widths": (4, 8, 8)}
KINDS = [
    *(("resnet20", {"order": order, "kernels": kernels}) for order in ORDERS for kernels in KERNELS),
    *(("resnet20", {"shortcut": shortcut}) for shortcut in SHORTCUTS),
    *(("preresnet20", {"resize": resize, "share_activation": "resize"}) for resize in RESIZES),
    ("preresnet50", {"widths": (4, 4, 8, 8)}),
    ("plain34", {"widths": (4, 4, 8, 8)}),
]


@pytest.mark.parametrize(("name", "changes"), KINDS, ids=str)
def test_the_graph_computes_the_same_scores(name, changes):
    net = resnets.create(name, seed=0, **{**SMALL, **changes}).eval()
    traced = fx.symbolic_trace(net)
    x = torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(1))
    assert torch.equal(traced(x), net(x))
    targets = {str(node.target) for node in traced.graph.nodes if node.op == "call_module"}
    assert {f"units.{i}.residual.conv1" for i in range(len(net.units))} <= targets | parts_of_own_layers(traced, net)


def parts_of_own_layers(traced, net):
    """Convolutions whose insides are traced, because their class is ours: the graph reads their weights."""
    read = {str(node.target).removesuffix(".weight") for node in traced.graph.nodes if node.op == "get_attr"}
    return {name for name, _ in net.named_modules() if name in read}


class Features(fx.Tracer):
    """Names nodes by their modules, as torchvision's feature extraction does."""

    def __init__(self):
        super().__init__()
        self.paths = []

    def call_module(self, m, forward, args, kwargs):
        self.paths.append(self.path_of_module(m))
        return super().call_module(m, forward, args, kwargs)


def test_units_can_be_named_as_features():
    net = resnets.create("preresnet20", seed=0, **SMALL)
    tracer = Features()
    tracer.trace(net)
    parts = ["stem", "units.0", "units.1", "units.2", "last", "classifier"]
    assert [path for path in tracer.paths if path in parts] == parts


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 32, 32), r"reads batches of shape \(N, 3, height, width\), not \(3, 32, 32\)"),
        (torch.zeros(1, 1, 32, 32), r"reads batches of shape \(N, 3, height, width\), not \(1, 1, 32, 32\)"),
        (torch.zeros(1, 3, 2, 2), "needs images of at least 3x3 pixels, not 2x2"),
        ([1.0], "reads a torch tensor, not list"),
    ],
)
def test_wrong_inputs_still_get_a_sentence(x, message):
    with pytest.raises(UserError, match=message):
        resnets.create("preresnet20", seed=0, **SMALL)(x)
