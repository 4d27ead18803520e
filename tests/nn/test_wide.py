"""Wide residual networks (WRN-16-4): a stem narrower than the first stage, against their layers written out."""

import dataclasses
import json

import pytest
import torch
from torch import nn

import resnets
from resnets import Spec, UserError
from resnets.analysis.complexity import complexity
from resnets.describe.network import describe
from resnets.weights.compare import find_differing_fields


class WideBlock(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(into)
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.project = nn.Conv2d(into, out, 1, stride, bias=False) if into != out else None

    def forward(self, x):
        activated = torch.relu(self.bn1(x))
        r = self.conv2(torch.relu(self.bn2(self.conv1(activated))))
        return r + (x if self.project is None else self.project(activated))


class Wide(nn.Module):
    """Zagoruyko's network of 6n+4 layers, k times as wide."""

    def __init__(self, n: int, k: int, classes: int) -> None:
        super().__init__()
        widths = [16, 16 * k, 32 * k, 64 * k]
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        blocks = []
        for stage in range(3):
            for i in range(n):
                into = widths[stage] if i == 0 else widths[stage + 1]
                blocks.append(WideBlock(into, widths[stage + 1], 2 if stage and i == 0 else 1))
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(64 * k)
        self.fc = nn.Linear(64 * k, classes)

    def forward(self, x):
        x = torch.relu(self.bn(self.blocks(self.conv(x))))
        return self.fc(x.mean((2, 3)))


def wide(**changes):
    """WRN-16-4."""
    given = {"stem_width": 16, "widths": (64, 128, 256), "blocks": 2, "resize": "project", "stem_activation": False}
    return resnets.create("preresnet20", seed=0, **{**given, **changes})


def ours_and_theirs(net):
    """Our tensors' names and those of the network written out."""
    theirs = Wide(2, 4, 10)
    names = {"stem.conv": "conv", "last.bn": "bn", "classifier": "fc"}
    for i in range(6):
        head = f"units.{i}.shared.bn" if theirs.blocks[i].project is not None else f"units.{i}.residual.before.bn"
        names |= {
            head: f"blocks.{i}.bn1",
            f"units.{i}.residual.conv1": f"blocks.{i}.conv1",
            f"units.{i}.residual.act1.bn": f"blocks.{i}.bn2",
            f"units.{i}.residual.conv2": f"blocks.{i}.conv2",
            f"units.{i}.resize.conv": f"blocks.{i}.project",
        }
    state = {f"{names[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": v for name, v in net.state_dict().items()}
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("training", [True, False])
def test_a_wide_net_is_its_layers_written_out(training):
    net = wide().double().train(training)
    theirs = ours_and_theirs(net).double().train(training)
    x = torch.randn(2, 3, 16, 16, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    a, b = net(x), theirs(x)
    torch.testing.assert_close(a, b)
    a.square().sum().backward()
    b.square().sum().backward()
    torch.testing.assert_close(net.stem.conv.weight.grad, theirs.conv.weight.grad)
    torch.testing.assert_close(net.units[0].resize.conv.weight.grad, theirs.blocks[0].project.weight.grad)


def test_its_cost_is_that_of_the_layers():
    net = wide()
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in Wide(2, 4, 10).parameters()) == 2_748_890
    assert complexity(net).parameters == 2_748_890
    stem, first, *_ = describe(net.spec).rows
    assert stem.layers == "3x3, 16"
    assert first.layers == "[3x3, 64; 3x3, 64] x 2"
    assert [kind.units for kind in describe(net.spec).kinds] == [(1, 3, 5), (2, 4), (0,)]
    assert describe(net.spec).changed["stem_width"] == 16


def test_its_file_holds_the_stem_and_older_ones_do_not(tmp_path):
    net = wide().eval()
    resnets.save_weights(net, tmp_path / "net.safetensors")
    again = resnets.load(tmp_path / "net.safetensors").eval()
    assert again.spec == net.spec
    x = torch.randn(1, 3, 16, 16)
    assert torch.equal(again(x), net(x))
    assert "stem_width" not in resnets.spec_of("preresnet20").to_dict()
    assert Spec.from_dict(json.loads(json.dumps(net.spec.to_dict()))) == net.spec
    assert find_differing_fields(net.spec, dataclasses.replace(net.spec, stem_width=32)) == ["stem_width"]


def test_a_stem_of_the_first_stage_is_the_default():
    assert resnets.spec_of("resnet20", stem_width=16) == resnets.spec_of("resnet20")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stem_width": -1}, "stem_width must be a whole number of at least 0, not -1"),
        ({"stem_width": "16"}, "stem_width must be a whole number"),
        ({"stem_width": 32}, "cannot go from 32 to 16; choose resize='project'"),
    ],
)
def test_bad_stems_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        resnets.spec_of("resnet20", **changes)


def test_the_onnx_graph_of_a_wide_net_computes_the_same():
    runtime = pytest.importorskip("onnxruntime")
    from resnets.engine.onnx import export

    net = wide(widths=(8, 8, 8), stem_width=4).eval()
    session = runtime.InferenceSession(export(net), providers=["CPUExecutionProvider"])
    x = torch.randn(2, 3, 24, 24)
    (scores,) = session.run(["scores"], {"images": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(scores), net(x).detach(), rtol=1e-4, atol=1e-4)


def test_a_wide_net_is_written_and_read_in_the_names_of_other_libraries(tmp_path):
    net = resnets.create("resnet18", seed=0, widths=(8, 8, 8, 8), stem_width=4, blocks=1).eval()
    resnets.save_weights(net, tmp_path / "net.safetensors", format="torchvision")
    again = resnets.create("resnet18", seed=1, widths=(8, 8, 8, 8), stem_width=4, blocks=1).eval()
    resnets.load_weights(again, tmp_path / "net.safetensors")
    x = torch.randn(1, 3, 40, 40)
    assert torch.equal(again(x), net(x))
