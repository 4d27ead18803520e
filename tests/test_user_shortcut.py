"""A shortcut and an order that a user's own file registers work wherever the papers' do."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import resnets
from resnets import Spec, UserError
from resnets.analysis.complexity import complexity
from resnets.analysis.propagation import propagation
from resnets.cli import main
from resnets.describe.drawing import draw_kinds
from resnets.describe.network import describe
from resnets.engine.memory_estimate import forecast
from resnets.engine.onnx import export
from resnets.runs import Run
from resnets.unit_spec import ORDERS, SHORTCUTS, Scale, Shortcut
from resnets.user_code import import_file

OWN = '''
import resnets

@resnets.register_shortcut
class Weighted(resnets.Shortcut):
    """w x + r with one learned w per unit."""

    start: float = 1.0
    kind = "weighted"
    formula = "w x + r"

    def module(self, channels):
        import torch

        class Weighted(torch.nn.Module):
            def __init__(self, start):
                super().__init__()
                self.w = torch.nn.Parameter(torch.full((1,), start))
                self.register_buffer("calls", torch.zeros((), dtype=torch.long))
                self.register_buffer("one", torch.ones(1), persistent=False)
                self.seen = None  # which it changes by itself

            def forward(self, x, r):
                if self.training:
                    self.calls += 1
                    self.seen = r.detach()
                return self.w * self.one * x + r

        return Weighted(self.start)


@resnets.register_shortcut
class Noisy(resnets.Shortcut):
    """v x + n r with a learned v for each channel, and n drawn around 1 in training."""

    spread: float = 0.1
    kind = "noisy"
    formula = "v x + n r"
    initial = ("spread",)

    def module(self, channels):
        return NoisyModule(channels, self.spread)

    @property
    def drawing(self):
        from resnets.unit_spec import Drawing

        return Drawing(factors=("v", "n"))


import torch
from resnets.nn import ShortcutModule


class NoisyModule(ShortcutModule):
    def __init__(self, channels, spread):
        super().__init__()
        self.v = torch.nn.Parameter(1 + spread * torch.randn(channels, 1, 1))
        self.spread = spread

    def forward(self, x, r):
        n = 1 + self.spread * torch.randn(len(r), 1, 1, 1) if self.training else 1
        return self.v * x + n * r

    def factor(self):
        return self.v.mean().item()

    def onnx(self, graph, x, r):
        return graph.add("Add", graph.times(graph.constant(self.v), x), r)


resnets.register_order("bn_before", before=("bn",), after=("relu",))
'''
SMALL = {"blocks": 1, "widths": (8, 16, 16)}
EXACT = ("weighted:0.5", "noisy")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The user's file, imported; nothing of it is left behind."""
    path = tmp_path / "my_shortcuts.py"
    path.write_text(OWN)
    before = dict(SHORTCUTS), dict(ORDERS)
    yield import_file(path)
    for table, content in zip((SHORTCUTS, ORDERS), before, strict=True):
        table.clear()
        table.update(content)
    sys.modules.pop("my_shortcuts", None)


def make(shortcut="weighted:0.5", **changes):
    return resnets.create("preresnet20", seed=0, **{**SMALL, "shortcut": shortcut, **changes})


def images(n=4):
    return torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def backward(net, x):
    """Scores and the gradients of all parameters, with the same random numbers."""
    net.zero_grad()
    torch.manual_seed(3)
    scores = net(x)
    scores.square().sum().backward()
    return [scores.detach(), *(p.grad.clone() for p in net.parameters())]


# --- registering ------------------------------------------------------------------------------


def test_a_registered_kind_is_a_frozen_dataclass_and_can_be_written_as_text(own):
    assert str(own.Weighted(0.25)) == "weighted:0.25"
    spec = resnets.spec_of("preresnet20", shortcut="weighted:0.25")
    assert spec == resnets.spec_of("preresnet20", shortcut=own.Weighted(0.25))
    assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert make().spec.shortcut == own.Weighted(0.5)


def test_importing_the_file_again_is_accepted(own, tmp_path):
    assert import_file(tmp_path / "my_shortcuts.py") is own
    before = own.Weighted
    del sys.modules["my_shortcuts"]
    again = import_file(tmp_path / "my_shortcuts.py")
    assert again.Weighted is not before
    assert SHORTCUTS["weighted"] is again.Weighted


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.py", None, "is not a Python file"),
        ("net.safetensors", "x", "is not a Python file"),
        ("json.py", "", "there is another module json; rename the file"),
        ("mine.py", "1 / 0", "fails with ZeroDivisionError: 'division by zero'"),
        ("mine.py", "import resnets; resnets.register_order('original')", "fails with UserError"),
    ],
)
def test_a_file_that_cannot_be_imported_gets_a_sentence(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        import_file(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert "mine" not in sys.modules


def refused(body, message, bases=(Shortcut,), annotations=None):
    kind = type("Mine", bases, {"__annotations__": annotations or {}, "kind": "mine", "formula": "x", **body})
    with pytest.raises(UserError, match=message) as caught:
        resnets.register_shortcut(kind)
    assert "\n" not in str(caught.value)
    assert "mine" not in SHORTCUTS


def test_a_kind_that_cannot_work_is_refused_with_a_sentence():
    module = {"module": lambda self, channels: nn.Identity()}
    refused({}, "needs a method module")
    refused({**module, "kind": "My Kind"}, "must have a name of small letters")
    refused({**module, "formula": None}, "needs a formula")
    refused(module, "field a must be a float", annotations={"a": float})
    refused({**module, "a": "x"}, "field a must be a float", annotations={"a": str})
    refused({**module, "kind": "scale"}, "already registered by resnets.unit_spec.Scale")
    refused({**module, "a": 1.0}, "cannot be a frozen dataclass", annotations={"a": float, "b": float})
    with pytest.raises(UserError, match=r"takes a subclass of resnets.Shortcut"):
        resnets.register_shortcut(3)
    assert SHORTCUTS["scale"] is Scale


def test_another_class_of_the_same_kind_is_refused(own):
    module = {"module": lambda self, channels: nn.Identity()}
    with pytest.raises(UserError, match=r"already registered by my_shortcuts.Weighted; choose another kind"):
        resnets.register_shortcut(type("Other", (Shortcut,), {"kind": "weighted", "formula": "x", **module}))


def test_orders_that_cannot_work_are_refused(own):
    resnets.register_order("bn_before", before=["bn"], after=["relu"])  # the same again
    with pytest.raises(UserError, match="there is already another order 'original'"):
        resnets.register_order("original", before=("bn",))
    for words in (("bn", "bn"), ("gelu",), "bn"):
        with pytest.raises(UserError, match="each at most once"):
            resnets.register_order("mine", last=words)
    assert "mine" not in ORDERS


def test_what_is_not_registered_is_refused_with_the_way_to_register_it():
    for what, word in (("shortcut", "weighted"), ("order", "bn_before")):
        advice = rf"unknown {what} '{word}'.*import the file that calls resnets.register_{what} first"
        with pytest.raises(UserError, match=advice):
            resnets.spec_of("resnet20", **{what: word})


@pytest.mark.parametrize(("value", "message"), [(math.inf, "between"), ("1", "between"), (True, "between")])
def test_values_that_no_file_can_hold_are_refused(own, value, message):
    with pytest.raises(UserError, match=f"Weighted: start must be {message}"):
        make(own.Weighted(value))


def test_the_example_in_the_docs_works(own, tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "shortcuts.md").read_text(encoding="utf-8")
    (tmp_path / "from_the_docs.py").write_text(
        re.search(r"```python\n(.*?)```", page, re.DOTALL)[1].replace('"weighted"', '"w"')
    )
    net = import_file(tmp_path / "from_the_docs.py").net
    del sys.modules["from_the_docs"]
    assert str(net.spec.shortcut) == "w:1"
    found = propagation(net, images(8), torch.arange(8))
    assert found.predicted[1] == found.factor[1] == pytest.approx(1)
    assert b"scores" in export(net)


# --- the network ------------------------------------------------------------------------------


def test_the_net_computes_the_equation_and_begins_as_its_module_does(own):
    net = make().double().eval()
    identity = resnets.create("preresnet20", seed=0, **SMALL, shortcut="scale:0.5:1").double().eval()
    assert [unit.shortcut.w.item() for unit in net.units] == [0.5] * 3
    identity.load_state_dict({k: v for k, v in net.state_dict().items() if ".shortcut." not in k})
    x = images().double()
    torch.testing.assert_close(net(x), identity(x))


def test_one_seed_gives_one_net_whatever_its_modules_draw(own):
    torch.manual_seed(0)
    first = make("noisy")
    torch.manual_seed(1)
    second = make("noisy")
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert first.units[0].shortcut.v.std() > 0
    assert not torch.equal(first.units[1].shortcut.v, first.units[2].shortcut.v)


@pytest.mark.parametrize("memory", ["fast", "lean", "min"])
@pytest.mark.parametrize("shortcut", EXACT)
def test_every_engine_computes_what_pytorch_does_and_says_how(own, shortcut, memory):
    net = make(shortcut, blocks=3).train()
    model, x = resnets.engine.prepare(net, memory=memory), images(8)
    plain = backward(net, x)
    for choice in model.choices:
        assert choice.runner in ("native", "plain")
        if choice.runner == "plain":
            assert f"the shortcut {net.spec.shortcut.kind} is registered by a user" in choice.reason
    for ours, theirs in zip(backward(model, x), plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3 * theirs.abs().max().item())
    if shortcut != "noisy":
        assert [unit.shortcut.calls.item() for unit in net.units] == [2] * 9  # no unit was run twice in one pass


def test_an_edit_of_the_users_module_takes_effect(own):
    net = make("noisy", blocks=2).train()
    model, x = resnets.engine.prepare(net), images(8)
    backward(model, x)
    net.units[1].shortcut.register_forward_hook(lambda module, args, y: 2 * y)
    net.units[2].shortcut.spread = 0.5
    for ours, theirs in zip(backward(model, x), backward(net, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3 * theirs.abs().max().item())


def test_freezing_keeps_the_scores(own):
    for shortcut in EXACT:
        for order in (*ORDERS, "bn_before"):
            net = make(shortcut, order=order).eval()
            torch.testing.assert_close(resnets.engine.freeze(net)(images()), net(images()), rtol=1e-4, atol=1e-4)


OWN_ORDERS = {
    "turned_before": {"before": ("relu", "bn")},
    "bn_then_relu": {"before": ("bn",), "last": ("relu",)},
    "turned_last": {"last": ("relu", "bn"), "after": ("relu",)},
    "turned_after": {"after": ("relu", "bn")},
    "all_places": {"before": ("bn", "relu"), "last": ("bn",), "after": ("relu",)},
    "none_at_the_ends": {},
}


@pytest.mark.parametrize("order", OWN_ORDERS)
@pytest.mark.parametrize("shortcut", ["identity", "scale:0.5:1", "noisy"])
def test_an_order_of_ones_own_is_run_frozen_exported_and_estimated(own, shortcut, order):
    runtime = pytest.importorskip("onnxruntime")
    resnets.register_order(order, **OWN_ORDERS[order])
    net = make(shortcut, order=order)
    for memory in ("fast", "lean", "min"):
        model = resnets.engine.prepare(net.train(), memory=memory)
        for ours, theirs in zip(backward(model, images(8)), backward(net, images(8)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3 * theirs.abs().max().item())
        assert forecast(net.spec, 8, mode=memory).maps > 0
    scores = net.eval()(images()).detach()
    torch.testing.assert_close(resnets.engine.freeze(net)(images()), scores, rtol=1e-4, atol=1e-4)
    for folded in (True, False):
        session = runtime.InferenceSession(export(net, folded=folded), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {"images": images().numpy()})
        torch.testing.assert_close(torch.from_numpy(theirs), scores, rtol=1e-4, atol=1e-4)
    assert describe(net.spec).kinds


def test_cost_memory_and_drawing_know_it(own):
    spec = make().spec
    assert complexity(spec).parameters == complexity(resnets.spec_of("preresnet20", **SMALL)).parameters + 3
    assert forecast(spec, 8).maps > 0
    meaning = next(switch.meaning for switch in describe(spec).switches if switch.name == "shortcut")
    assert meaning == "w x + r, r = F(x)"
    assert "weighted:0.5" in draw_kinds(describe(spec).kinds)
    assert "× v" in draw_kinds(describe(make("noisy").spec).kinds)


def test_info_draws_it(own, capsys):
    assert main(["info", "preresnet20", "--shortcut", "weighted", "--order", "bn_before"]) == 0
    out = capsys.readouterr().out
    assert "w x + r" in out
    assert "BN before the first convolution of F; ReLU as f" in out


def test_a_module_that_cannot_be_built_or_counted_gets_a_sentence(own, monkeypatch):
    monkeypatch.setattr(own.Weighted, "module", lambda self, channels: channels / 0)
    with pytest.raises(UserError, match="module of the shortcut 'weighted' fails with ZeroDivisionError"):
        make()
    monkeypatch.setattr(own.Weighted, "module", lambda self, channels: channels)
    with pytest.raises(UserError, match=r"module of the shortcut 'weighted' must return a torch.nn.Module, not 8"):
        make()
    monkeypatch.setattr(own.Weighted, "module", lambda self, channels: AsksForNumbers())
    with pytest.raises(UserError, match="the shortcut weighted cannot be counted from shapes alone"):
        complexity(make().spec)


class AsksForNumbers(nn.Module):
    def forward(self, x, r):
        return x + r if x.mean().item() > 0 else r


def test_whole_numbers_can_be_fields(own):
    counted = type("Counted", (Shortcut,), {
        "__annotations__": {"n": int}, "n": 2, "kind": "counted", "formula": "x", "module": own.Weighted.module,
    })  # fmt: skip
    resnets.register_shortcut(counted)
    for n in (3, 1_000_000, 123_456_789):
        text = str(counted(n))
        assert resnets.spec_of("resnet20", shortcut=text).shortcut == counted(n)
    for bad in ("counted:1.5", "counted:x"):
        with pytest.raises(UserError, match="n must be a whole number"):
            resnets.spec_of("resnet20", shortcut=bad)
    with pytest.raises(UserError, match=r"n must be a whole number, not 1.5"):
        resnets.spec_of("resnet20", shortcut=counted(1.5))


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shortcut", EXACT)
def test_saved_and_loaded_it_is_the_same_net(own, tmp_path, shortcut):
    net = make(shortcut, order="bn_before")
    backward(net.train(), images())
    resnets.save_weights(net, tmp_path / "net.safetensors")
    again = resnets.load(tmp_path / "net.safetensors")
    assert again.spec == net.spec
    assert torch.equal(again.eval()(images()), net.eval()(images()))
    filled = make(shortcut, order="bn_before")
    resnets.load_weights(filled, tmp_path / "net.safetensors")
    assert torch.equal(filled.eval()(images()), net(images()))


def test_a_file_of_an_unregistered_shortcut_says_what_to_import(own, tmp_path):
    resnets.save_weights(make(), tmp_path / "net.safetensors")
    code = f"import resnets; resnets.load({str(tmp_path / 'net.safetensors')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "unknown shortcut 'weighted'" in done.stderr
    assert "import the file that calls resnets.register_shortcut first" in done.stderr


def test_fields_that_only_begin_weights_do_not_tell_files_apart(own, tmp_path):
    resnets.save_weights(make("noisy:0.2"), tmp_path / "net.safetensors")
    resnets.load_weights(make("noisy:0.1"), tmp_path / "net.safetensors")
    resnets.save_weights(make("weighted:0.2"), tmp_path / "net.safetensors")
    with pytest.raises(UserError, match=r"shortcut='weighted:0.2'"):
        resnets.load_weights(make("weighted:0.1"), tmp_path / "net.safetensors")


def test_an_edited_module_is_not_saved_as_if_it_were_not(own, tmp_path):
    net = make("noisy")
    net.units[1].shortcut.spread = 0.5
    with pytest.raises(UserError, match=r"units.1.shortcut has spread 0.5, not 0.1"):
        resnets.save_weights(net, tmp_path / "net.safetensors")
    net = make("noisy")
    net.units[1].shortcut = nn.Bilinear(2, 2, 2)
    with pytest.raises(UserError, match=r"units.1.shortcut"):
        resnets.save_weights(net, tmp_path / "net.safetensors")


# --- analysis ---------------------------------------------------------------------------------


def test_what_a_shortcut_does_not_say_is_measured(own):
    net = make(order="full_preact", blocks=2)
    for unit in net.units:
        unit.shortcut.w.data.fill_(0.75)
    found = propagation(net, images(8), torch.arange(8))
    inside = [i for first, last in found.spans for i in range(first, last)]
    assert [found.factor[i] for i in inside] == pytest.approx([0.75] * len(inside))
    assert set(found.predicted) == {None}
    identity = resnets.create("preresnet20", blocks=2, widths=SMALL["widths"], shortcut="scale:0.75:1")
    identity.load_state_dict({k: v for k, v in net.state_dict().items() if ".shortcut." not in k})
    same = propagation(identity, images(8), torch.arange(8))
    assert found.share == pytest.approx(same.share, rel=1e-4)
    assert found.cosine == pytest.approx(same.cosine, rel=1e-4)
    assert [unit.shortcut.calls.item() for unit in net.units] == [0] * 6  # the net is left as it was


def test_what_a_shortcut_says_is_told_beside_what_is_measured(own):
    net = make("noisy", blocks=2)
    found = propagation(net, images(8), torch.arange(8), statistics="running")
    assert found.predicted[0] == pytest.approx(net.units[0].shortcut.v.mean().item())
    assert found.factor[0] == pytest.approx(found.predicted[0], abs=0.1)


# --- exports ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fold", [False, True])
def test_onnx_computes_what_a_module_with_an_onnx_form_does(own, tmp_path, monkeypatch, capsys, fold):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    net = make("noisy", order="bn_before").eval()
    resnets.save_weights(net, "net.safetensors")
    assert main(["export", "net.safetensors", "-o", "net.onnx", *(["--fold"] if fold else [])]) == 0
    session = runtime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["scores"]
    (scores,) = session.run(["scores"], {"images": images().numpy()})
    torch.testing.assert_close(torch.from_numpy(scores), net(images()).detach(), rtol=1e-4, atol=1e-4)


def test_without_an_onnx_form_the_export_is_refused_and_torch_export_works(own, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    net = make().eval()
    resnets.save_weights(net, "net.safetensors")
    assert main(["export", "net.safetensors", "-o", "net.onnx"]) == 2
    told = capsys.readouterr().err
    assert "Weighted has no ONNX form" in told
    assert "torch-export or by torch.onnx.export" in told
    assert not (tmp_path / "net.onnx").exists()
    assert main(["export", "net.safetensors", "--format", "torch-export", "-o", "net.pt2"]) == 0
    program = torch.export.load("net.pt2").module()
    torch.testing.assert_close(program(images()), net(images()), rtol=1e-4, atol=1e-4)


# --- training ---------------------------------------------------------------------------------


def train(out):
    settings = {"length": "6it", "batch": 32, "warmup": "1it", "milestones": "4it", "sizes": "16@0"}
    spec = resnets.spec_of("preresnet20", **SMALL, shortcut="noisy", order="bn_before")
    return resnets.train(spec, data="synthetic:256", out=out, seed=3, quiet=True, checkpoint_every=0, **settings)


def test_a_training_that_was_stopped_ends_with_the_same_bytes(own, tmp_path, monkeypatch):
    from resnets.training.loop import Trainer

    train(tmp_path / "whole")
    step = Trainer.step

    def stop(trainer, number):
        if number == 4:
            raise KeyboardInterrupt
        return step(trainer, number)

    monkeypatch.setattr(Trainer, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped")
    monkeypatch.undo()
    train(tmp_path / "stopped")
    (whole,), (stopped,) = (list((tmp_path / name).iterdir()) for name in ("whole", "stopped"))
    assert whole.name == stopped.name
    first, second = (resnets.load(path / "final.safetensors") for path in (whole, stopped))
    start = make("noisy", order="bn_before")
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.units[0].shortcut.v, start.units[0].shortcut.v)
    assert Run(whole).identity.spec.shortcut == own.Noisy()
    assert main(["analyze", str(whole), "--data", "synthetic:256", "--batch", "16"]) == 0


def test_a_training_of_one_own_file_in_a_fresh_process_gives_the_same_bytes(own, tmp_path):
    train(tmp_path / "here")
    code = "import my_shortcuts, test_user_shortcut; from pathlib import Path; test_user_shortcut.train(Path('there'))"
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)
    (here,), (there,) = (list((tmp_path / name).iterdir()) for name in ("here", "there"))
    a, b = (resnets.load(path / "final.safetensors").state_dict() for path in (here, there))
    assert all(torch.equal(a[name], b[name]) for name in a)
