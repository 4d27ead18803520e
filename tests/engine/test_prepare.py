"""What `prepare` takes, refuses and leaves alone, and which runner each unit gets."""

import copy
import pickle
from functools import partial

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from variants import trained as any_trained

from resnets.engine import MODES, prepare
from resnets.engine.explain import explain
from resnets.engine.runners import choose
from resnets.errors import UserError
from resnets.unit_spec import parse_shortcut


def trained(**options):
    """A net of widths for which there are no kernels of our own."""
    return any_trained(**{"widths": (4, 6, 10), **options})


def images(count=4):
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(5))


def test_the_plain_engine_is_the_network_itself():
    net = trained()
    assert prepare(net, engine="plain") is net


@pytest.mark.parametrize("mode", MODES)
def test_parameters_and_buffers_are_those_of_the_network(mode):
    net = trained()
    model = prepare(net, memory=mode)
    assert {id(p) for p in model.parameters()} == {id(p) for p in net.parameters()}
    assert {id(b) for b in model.buffers()} == {id(b) for b in net.buffers()}
    assert list(net.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("mode", MODES)
def test_without_training_or_gradients_the_network_itself_is_run(mode):
    net = trained(order="full_preact")
    model, x = prepare(net, memory=mode), images()
    assert torch.equal(model.eval()(x), net(x))
    assert not net.training, "the mode of the module is the network's"
    twin = copy.deepcopy(net).train()
    with torch.no_grad():
        assert torch.equal(model.train()(x), twin(x))
    for ours, theirs in zip(net.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_is_whole_and_its_own(mode):
    net = trained()
    model = prepare(net, memory=mode)
    twin, x = copy.deepcopy(model), images()
    assert torch.equal(twin(x), model(x))
    twin(x).sum().backward()
    assert all(p.grad is not None for p in twin.net.parameters())
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(pickle.loads(pickle.dumps(net)).eval()(x), net.eval()(x)), "the network is left as it was"


def test_lean_and_min_run_lean_units():
    net = trained(blocks=4)
    assert {choice.runner for choice in prepare(net, memory="fast").choices} == {"direct"}
    assert {choice.runner for choice in prepare(net, memory="lean").choices} == {"lean"}
    model = prepare(net, memory="min")
    assert {choice.runner for choice in model.choices} == {"lean"}
    assert sum(model.lengths) == 12
    assert len(model.lengths) > 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda bn: setattr(bn, "momentum", None), "residual.act1.bn has momentum None, not 0.1"),
        (lambda bn: setattr(bn, "track_running_stats", False), "bn has track_running_stats False, not True"),
        (nn.SyncBatchNorm.convert_sync_batchnorm, "residual.act1.bn is a SyncBatchNorm, not a BatchNorm2d"),
    ],
)
def test_a_changed_bn_leaves_its_unit_plain_and_says_so(change, reason):
    net = trained(blocks=2)
    act = net.units[1].residual.act1
    act.bn = change(act.bn) or act.bn
    for mode in MODES:
        model = prepare(net, memory=mode)
        assert [choice.runner for choice in model.choices].count("plain") == 1
        assert model.choices[1].reason.endswith(reason)


def test_compiled_units_compute_the_same(monkeypatch):
    compiled = []

    def compile(unit, dynamic):  # the real one takes a minute
        assert dynamic is False
        compiled.append(unit)
        return unit.forward

    monkeypatch.setattr(torch, "compile", compile)
    net = trained()
    model = prepare(net, engine="compiled")
    assert compiled == list(net.units)
    assert {choice.runner for choice in model.choices} == {"compiled"}
    twin = copy.deepcopy(net)
    assert torch.equal(model(images()), twin(images()))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of dynamo about itself
def test_torch_compile_takes_each_kind_of_unit_once_at_any_depth(monkeypatch):
    """Through torch.compile itself, up to its last part, which would take a minute."""
    compiles = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=compiles))
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    counts = []
    for blocks in (2, 6):
        torch._dynamo.reset()
        compiles.frame_count = 0
        net = trained(blocks=blocks)
        twin = copy.deepcopy(net)
        for model in (prepare(net, engine="compiled"), twin):
            model(images()).square().sum().backward()
        for (name, ours), theirs in zip(net.named_parameters(), twin.parameters(), strict=True):
            assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5), name
        for ours, theirs in zip(net.buffers(), twin.buffers(), strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        counts.append(compiles.frame_count)
    torch._dynamo.reset()
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_torch_compile_cannot_do_is_a_sentence(monkeypatch):
    def broken(graph, inputs):
        raise RuntimeError("no compiler was found")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    with pytest.raises(UserError, match=r"cannot compile a unit here \(.*no compiler.*\); take --engine auto"):
        prepare(trained(), engine="compiled")(images())
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "quick"}, "engine"),
        ({"memory": "low"}, "memory"),
        ({"engine": "plain", "memory": "lean"}, r"engine plain \(PyTorch as it is\) has no memory mode lean"),
        ({"engine": "compiled", "memory": "min"}, "has no memory mode min; choose engine auto"),
        ({"memory": "auto"}, "memory='auto' needs to know the batch"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, words):
    with pytest.raises(UserError, match=words):
        prepare(trained(), **options)


def test_auto_takes_the_fastest_mode_that_fits(monkeypatch):
    from resnets.engine import memory_estimate
    from resnets.engine.memory_estimate import forecast

    net = trained(blocks=8)
    needs = {mode: forecast(net.spec, 64, 32, mode).added for mode in MODES}
    assert needs["fast"] > needs["lean"] > needs["min"]
    for room, mode in ((None, "fast"), *((1.2 * need, mode) for mode, need in needs.items()), (1, "min")):
        monkeypatch.setattr(memory_estimate, "available", lambda device, room=room: room)
        assert prepare(net, memory="auto", batch=64, size=32).memory == mode


def test_one_number_has_no_variance_in_any_mode():
    net = trained(order="full_preact", widths=(4,), blocks=2)
    for mode in MODES:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            prepare(net, memory=mode)(torch.randn(1, 3, 1, 1))


def test_every_kind_of_unit_says_why_it_is_run_as_it_is():
    for shortcut in ("identity", "exclusive_gate", "dropout"):
        for mode in MODES:
            choice = choose(trained(shortcut=parse_shortcut(shortcut)).units[0], mode)
            assert choice.runner
            assert choice.reason


def test_the_report_names_every_unit_and_what_was_chosen():
    spec = trained(blocks=3).spec
    lines = {line.what: line for line in explain(spec, 128)}
    assert {"device", "layout", "optimizer", "memory"} <= lines.keys()
    assert lines["units 0 to 8"].value == "direct"
    assert all(line.value and line.reason for line in lines.values())


def test_the_report_tells_what_does_not_fit(monkeypatch):
    from resnets.engine import explain as report

    monkeypatch.setattr(report, "available", lambda device: 1 << 20)
    lines = {line.what: line for line in explain(trained(blocks=6).spec, 128)}
    assert lines["memory"].value == "min"
    assert lines["memory"].reason.endswith("available: 1 MiB; none fits")
    assert int(lines["segments"].value) > 2
    assert lines["units 0 to 17"].value == "lean"
