"""Whatever a user changes about a network, the engine computes what PyTorch computes, or refuses in a sentence."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional

import resnets
from resnets.analysis.propagation import propagation
from resnets.data import load
from resnets.engine import MODES, freeze, prepare
from resnets.engine.explain import explain
from resnets.engine.onnx import export
from resnets.errors import UserError
from resnets.nn import build, shortcuts
from resnets.nn.structure import SET_BY_USERS, find_change
from resnets.recipe import recipe_of
from resnets.training.classification import Classification
from resnets.training.loop import Trainer
from resnets.unit_spec import ORDERS, Identity, Scale, Shortcut
from tools.torture.net_edits import NET_EDITS, OWN_ORDERS, UNIT_EDITS, SqueezeExcite, add_one, random_edit, random_net

SEEDS = range(300)


@pytest.fixture(autouse=True)
def _papers_orders(monkeypatch):
    """Orders that a test adds are gone after it."""
    before = dict(ORDERS)
    yield
    ORDERS.clear()
    ORDERS.update(before)


def images(draw):
    return torch.randn(4, 3, 16, 12, generator=torch.Generator().manual_seed(draw.randrange(2**31)))


def run(model, net, x, dtype=torch.float32):
    """Loss, scores, gradients and statistics of a step, which leaves no trace in `net`."""
    before = [buffer.clone() for buffer in net.buffers()]
    net.zero_grad()
    x = x.to(dtype, copy=True).requires_grad_(bool(x[0, 0, 0, 0] > 0))  # some runners of stems take no such images
    torch.manual_seed(3)  # for the dropout shortcut
    out = model(x)
    loss = functional.cross_entropy(out, torch.arange(len(x)) % out.shape[1])
    loss.backward()
    found = {"scores": out.detach(), **({} if x.grad is None else {"images": x.grad})}
    found |= {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    found |= {name: b.clone() for name, b in net.named_buffers() if b.is_floating_point()}
    for buffer, value in zip(net.buffers(), before, strict=True):
        buffer.copy_(value)
    return found


def distance(found, wanted):
    """Over all tensors: the root of the mean of the squares of relative errors."""
    assert found.keys() == wanted.keys()
    largest = max(float(t.norm()) for t in wanted.values())
    errors = [
        float(
            (found[name].double() - wanted[name].double()).norm()
            / wanted[name].double().norm().clamp_min(1e-3 * largest)
        )
        for name in wanted
    ]
    return (sum(e * e for e in errors) / len(errors)) ** 0.5


def require_same(net, draw, what):
    """A ReLU at the edge may flip by rounding, so what is wrong must be wrong on a second batch too."""
    try:
        compare(net, images(draw), what)
    except AssertionError:
        compare(net, images(draw), what)


def compare(net, x, what):
    ours = [run(prepare(net, memory=mode), net, x) for mode in MODES]
    theirs = run(net, net, x)
    net.double()
    exact = run(net, net, x, torch.float64)
    net.float()
    allowed = 5 * distance(theirs, exact) + 2e-4  # BN's sums of 48 pixels, each rounded to float32
    for mode, found in zip(MODES, ours, strict=True):
        assert distance(found, exact) <= allowed, (what, mode)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_edit_of_a_random_net_gives_pytorchs_loss_and_gradients(seed):
    draw = random.Random(seed)
    net = random_net(draw)
    edits = [random_edit(net, draw) for _ in range(draw.choice((1, 1, 2)))]
    require_same(net, draw, (net.spec, edits))


@pytest.mark.parametrize("seed", range(40))
def test_an_edit_after_preparing_takes_effect(seed):
    draw = random.Random(1000 + seed)
    net = random_net(draw)
    model, x = prepare(net, memory=draw.choice(list(MODES))), images(draw)
    run(model, net, x)
    edit = random_edit(net, draw)
    assert distance(run(model, net, x), run(net, net, x)) <= 2e-3, (net.spec, edit)


def edit_and_test(seed):
    """A random net with a random edit, what was edited, images, and the scores that PyTorch gives them in testing."""
    draw = random.Random(seed)
    net = random_net(draw)
    edit = random_edit(net, draw)
    net.eval()
    x = images(draw)
    with torch.no_grad():
        return net, edit, x, net(x)


@pytest.mark.parametrize("seed", range(80))
def test_freezing_a_random_edit_gives_pytorchs_scores(seed):
    net, edit, x, wanted = edit_and_test(2000 + seed)
    found = freeze(net)(x)
    assert float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-4, (net.spec, edit)


@pytest.mark.parametrize("seed", range(60))
def test_onnx_and_files_of_a_random_edit_compute_the_same_or_are_refused(seed, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    net, edit, x, wanted = edit_and_test(3000 + seed)
    if find_change(net, hooks=True, ignore=SET_BY_USERS):
        with pytest.raises(UserError, match="was changed"):
            export(net)
    else:
        session = onnxruntime.InferenceSession(export(net), providers=["CPUExecutionProvider"])
        found = torch.from_numpy(session.run(None, {"images": x.numpy()})[0])
        assert float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-4, (net.spec, edit)
    path = tmp_path / "net.safetensors"
    if find_change(net):
        with pytest.raises(UserError, match="no longer the"):
            resnets.save_weights(net, path)
    else:
        resnets.save_weights(net, path)
        if not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules()):  # hooks are no part of weights
            with torch.no_grad():
                assert torch.equal(resnets.load(path).eval()(x), wanted), (net.spec, edit)


@pytest.mark.parametrize("name", UNIT_EDITS)
def test_each_edit_of_a_unit_alone(name):
    draw = random.Random(name)
    net = resnets.create("preresnet20", seed=0, blocks=2, widths=(8, 16, 16)).train()
    UNIT_EDITS[name](net.units[1], draw)
    require_same(net, draw, name)


@pytest.mark.parametrize("name", NET_EDITS)
def test_each_edit_of_a_net_alone(name):
    draw = random.Random(name)
    net = resnets.create("preresnet20", seed=0, blocks=2, widths=(8, 16, 16)).train()
    NET_EDITS[name](net, draw)
    require_same(net, draw, name)


@pytest.mark.parametrize("name", OWN_ORDERS)
def test_an_own_row_of_orders(name):
    ORDERS[name] = OWN_ORDERS[name]
    net = resnets.create("resnet20", seed=0, blocks=2, widths=(8, 16, 16), order=name).train()
    require_same(net, random.Random(name), name)


def test_a_changed_unit_says_why_and_the_others_stay_fast():
    net = resnets.create("preresnet20", seed=0, blocks=2, widths=(8, 16, 16)).train()
    fast = prepare(net).choices[0].runner
    net.units[1].residual.act1.relu = nn.GELU()
    choices = prepare(net).choices
    assert choices[1].runner == "plain"
    assert choices[1].reason == "residual.act1.relu is a GELU, not a ReLU"
    assert {choice.runner for i, choice in enumerate(choices) if i != 1} == {fast}


def test_the_report_of_a_changed_net_names_the_unit_and_the_change():
    net = resnets.create("preresnet20", seed=0, blocks=2)
    net.units[3].register_forward_hook(add_one)
    lines = {line.what: line for line in explain(net, 128)}
    assert (lines["unit 3"].value, lines["unit 3"].reason) == ("plain", "the unit has a hook")


def test_a_changed_unit_is_not_run_again_in_min_and_the_others_are():
    net = resnets.create("preresnet20", seed=0, blocks=4, widths=(8, 16, 16)).train()
    calls = []
    net.units[1].register_forward_hook(lambda *_: calls.append(1))
    model = prepare(net, memory="min")
    assert len(model.lengths) > 1
    run(model, net, images(random.Random(0)))
    assert calls == [1]


def test_a_forward_replaced_in_a_class_takes_effect(monkeypatch):
    net = resnets.create("preresnet20", seed=0, blocks=1, widths=(8, 8, 8)).train()
    model, x = prepare(net), images(random.Random(0))
    run(model, net, x)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: functional.gelu(x))
    assert distance(run(model, net, x), run(net, net, x)) <= 2e-3


def test_a_hook_on_all_modules_sees_all_of_them():
    net = resnets.create("preresnet20", seed=0, blocks=1, widths=(8, 8, 8)).train()
    model, seen = prepare(net), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        run(model, net, images(random.Random(0)))
    finally:
        handle.remove()
    assert seen.count(nn.Conv2d) == sum(isinstance(m, nn.Conv2d) for m in net.modules())


def test_another_dtype_of_one_layer_fails_as_in_pytorch():
    net = resnets.create("preresnet20", seed=0, blocks=1, widths=(8, 8, 8)).train()
    net.units[1].residual.act1.bn.double()
    for model in (net, *(prepare(net, memory=mode) for mode in MODES)):
        with pytest.raises(RuntimeError, match=r"(?i)type"):
            model(images(random.Random(0))).sum().backward()


def test_the_estimate_is_refused_for_a_changed_net():
    net = resnets.create("preresnet20", seed=0)
    net.units[0].residual.conv1 = nn.Conv2d(16, 16, 5, padding=2, bias=False)
    with pytest.raises(UserError, match=r"this net was changed \(units.0.residual.conv1 has kernel_size"):
        prepare(net, memory="auto", batch=128)


def test_a_gelu_net_is_not_saved_as_a_relu_net(tmp_path):
    net = resnets.create("preresnet20", seed=0)
    net.units[2].residual.act1.relu = nn.GELU()
    with pytest.raises(
        UserError, match=r"no longer the preresnet20 .*units.2.residual.act1.relu is a GELU, not a ReLU"
    ):
        resnets.save_weights(net, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def test_weights_are_saved_in_spite_of_a_hook_or_another_momentum(tmp_path):
    net = resnets.create("preresnet20", seed=0)
    net.units[2].register_forward_hook(add_one)
    net.units[1].residual.act1.bn.momentum = 0.01
    resnets.save_weights(net, tmp_path / "net.safetensors")


def test_a_prepared_network_can_be_used_as_the_network(tmp_path):
    net = resnets.create("preresnet20", seed=0, blocks=1)
    net.note = "mine"
    model = prepare(net)
    assert list(model.state_dict()) == list(net.state_dict())
    assert model.spec is net.spec
    assert model.note == "mine"
    assert prepare(model).original is net
    resnets.save_weights(model, tmp_path / "net.safetensors")
    x = images(random.Random(0))
    assert torch.equal(resnets.load(tmp_path / "net.safetensors").eval()(x), net.eval()(x))
    assert torch.equal(freeze(model)(x), freeze(net)(x))
    assert find_change(model, hooks=True, ignore=()) is None
    model.train()
    assert net.training
    net.eval()
    assert not model.training


def test_a_trainer_moves_the_weights_that_a_user_added():
    spec = resnets.create("preresnet20", blocks=1, widths=(8, 8, 8)).spec
    net = build(spec, seed=0)
    net.units[1].residual.add_module("se", SqueezeExcite(8))
    before = net.units[1].residual.se.linear.weight.clone()
    recipe = recipe_of("cifar-paper", length="2it", batch=16, warmup="0it", milestones="")
    trainer = Trainer(Classification(spec, load("synthetic:64"), net=net), recipe, 0)
    for step in range(2):
        trainer.step(step)
    assert (net.units[1].residual.se.linear.weight - before).abs().max() > 1e-4


def test_a_shortcut_of_ones_own_is_refused():
    class Weighted(Shortcut):
        kind = "weighted"

    class Softened(Scale):
        pass

    for shortcut in (Weighted(), Softened(0.5, 1.0)):
        with pytest.raises(UserError, match="shortcut must be one of identity"):
            resnets.create("resnet20", shortcut=shortcut)
        with pytest.raises(UserError, match=r"register a class of your own with resnets.register_shortcut"):
            shortcuts.make(shortcut, 8)
    assert type(shortcuts.make(Identity(), 8)) is shortcuts.Identity


def test_analysis_refuses_units_that_it_cannot_take_apart():
    net = resnets.create("preresnet20", seed=0, blocks=1, widths=(8, 8, 8))
    net.units[1].shortcut = nn.Identity()
    with pytest.raises(UserError, match="unit 1 has a shortcut of its own, Identity"):
        propagation(net, images(random.Random(0)), torch.arange(4))
