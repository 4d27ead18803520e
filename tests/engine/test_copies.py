"""A prepared network can be copied, pickled and sent to another process, with the kernels and without."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch.optim.swa_utils import AveragedModel
from variants import trained

from resnets.engine import MODES, prepare
from resnets.engine.native.build import load

X = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(5))
WIDTHS = {"native": (8, 8, 16), "PyTorch": (4, 6, 10)}


def prepared(kind, mode):
    if kind == "native" and load().kernels is None:
        pytest.skip(load().reason)
    model = prepare(trained(widths=WIDTHS[kind], order="full_preact"), memory=mode)
    assert ("native" in {choice.runner for choice in model.choices}) == (kind == "native")
    return model


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model)), "torch.save": saved}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", WIDTHS)
def test_a_copy_computes_the_same_and_is_its_own(kind, mode, way):
    model = prepared(kind, mode)
    twin = WAYS[way](model)
    assert [choice.runner for choice in twin.choices] == [choice.runner for choice in model.choices]
    assert twin.lengths == model.lengths
    before = [tensor.clone() for tensor in model.state_dict().values()]
    out = twin(X)
    out.sum().backward()
    assert all(p.grad is not None for p in twin.parameters())
    assert all(p.grad is None for p in model.parameters())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    for tensor, wanted in zip(model.state_dict().values(), before, strict=True):
        assert torch.equal(tensor, wanted), "nor does the original move along"
    assert torch.equal(model(X), out)
    assert not WAYS[way](model.eval()).training


def test_an_average_of_weights_as_pytorch_makes_it():
    model = prepared("native", "fast")
    average = AveragedModel(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(2)
    average.update_parameters(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(2)
    average.update_parameters(model)  # the mean of 2 and 4
    for mean, now in zip(average.module.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mean, now - 1)


def test_another_process_reads_it(tmp_path):
    """As `spawn` sends it: the kernels are loaded there."""
    model = prepared("native", "fast")
    (tmp_path / "model").write_bytes(pickle.dumps((model, X)))
    code = (
        "import pickle, sys; model, x = pickle.load(open(sys.argv[1], 'rb')); "
        "print(model.choices[0].runner, model(x).sum().item())"
    )
    said = subprocess.check_output([sys.executable, "-c", code, str(tmp_path / "model")], text=True, timeout=300)
    runner, total = said.split()
    assert runner == "native"
    assert float(total) == pytest.approx(model(X).sum().item(), rel=1e-4, abs=1e-5)
