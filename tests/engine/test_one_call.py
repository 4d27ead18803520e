"""A frozen network as one call into C++: against float64, on any number of threads, and after any change."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from variants import SMALL, VARIANTS, relative, trained

import resnets
from resnets.engine import one_call
from resnets.engine.folding import Conv
from resnets.engine.frozen import freeze
from resnets.engine.inference import inference
from resnets.engine.native import network
from resnets.engine.native.network import IMAGES, WINOGRAD4, Layers, Loaded, Network, Room, load
from resnets.native_build import NotBuiltError
from resnets.nn import ResNet

needs_library = pytest.mark.skipif(load().library is None, reason="the library is not compiled here")
KINDS = (
    *("resnet20", "preresnet20", "plain20", "resnet164", "preresnet164", "resnet110_1layer", "preresnet110_1layer"),
    *("resnet18", "preresnet18", "plain18", "resnet50", "preresnet50"),
)
WEIGHTS = Path(__file__).parents[2].parent / "shared/data/weights"


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def images(batch, *size, channels=3, seed=0):
    return torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(seed))


def exact_scores(net, x):
    with torch.no_grad():
        return copy.deepcopy(net).double().eval()(x.double())


def small(**options):
    return freeze(trained(order="full_preact", **options))


def uses_library(frozen):
    return frozen._one_call is not None and frozen._one_call.run is not None


# --- the same scores --------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_named_network(name):
    net = resnets.create(name, seed=0, blocks=2).eval()
    frozen, plain = freeze(net), inference(net, "plain")
    sizes = (
        ((2, 32, 32), (1, 33, 35), (3, 17, 18))
        if net.spec.stem == "imagenet"
        else ((2, 32, 32), (1, 33, 35), (3, 7, 9), (1, 3, 3))
    )
    for x in (images(*size) for size in sizes):
        wanted = exact_scores(net, x)
        assert relative(frozen(x), wanted) < 1e-5
        assert relative(plain(x), wanted) < 1e-5
    assert uses_library(frozen)


@needs_library
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_only_gates_are_computed_layer_by_layer(options):
    frozen = freeze(trained(**options))
    frozen(images(1, 9, 9, channels=frozen.spec.in_channels))
    assert uses_library(frozen) == ("gate" not in frozen.spec.shortcut.kind)


@needs_library
def test_images_in_any_layout_have_the_same_scores():
    frozen, x = small(), images(3, 14, 10)
    wanted = frozen(x)
    assert torch.equal(frozen(x.contiguous(memory_format=torch.channels_last)), wanted)
    assert torch.equal(
        frozen(images(3, 10, 14).transpose(2, 3)), frozen(images(3, 10, 14).transpose(2, 3).contiguous())
    )
    wide = torch.zeros(6, 3, 16, 24)
    wide[::2, :, 1:15, 2:22:2] = x
    assert torch.equal(frozen(wide[::2, :, 1:15, 2:22:2]), wanted)
    assert torch.equal(frozen(x[:1].expand(3, 3, 14, 10)), wanted[:1].expand(3, -1))


@needs_library
def test_nan_stays_nan():
    net = resnets.create("resnet18", seed=0, blocks=1, widths=(8, 8, 8, 8)).eval()
    x = images(2, 32, 32)
    x[1, 0, 5, 5] = float("nan")
    found = freeze(net)(x)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()


# --- accuracy ---------------------------------------------------------------------------------


def textures(count):
    """Images with the spectrum of photographs, normalised."""
    noise = torch.fft.rfft2(images(count, 32, 32, seed=1))
    y, x = torch.meshgrid(torch.fft.fftfreq(32), torch.fft.rfftfreq(32), indexing="ij")
    smooth = torch.fft.irfft2(noise / (torch.hypot(x, y) + 1 / 32))
    return smooth / smooth.std((1, 2, 3), keepdim=True)


@needs_library
@pytest.mark.parametrize("weights", ["preresnet20.cifar10", "resnet20.cifar10", "resnet56"])
@pytest.mark.parametrize("make", [textures, lambda n: images(n, 32, 32)], ids=["textures", "noise"])
def test_winograds_error_on_trained_weights(weights, make):
    if weights == "resnet56":
        weights = WEIGHTS / "akamaster_resnet56-4bfd9763.th"
        if not weights.exists():
            pytest.skip("these weights are not here")
    net = resnets.load(weights).eval()
    x = make(16)
    frozen = freeze(net)
    found, wanted = frozen(x), exact_scores(net, x)
    assert any(packed.kind == WINOGRAD4 for packed in frozen._one_call.run.packed)
    assert relative(found, wanted) < 1e-5  # ten times better than we promise


@needs_library
def test_winograds_error_in_a_deep_network():
    net = trained(kernels=(3, 3), widths=(16, 32, 64), blocks=18, order="full_preact")
    x = images(2, 32, 32)
    assert relative(freeze(net)(x), exact_scores(net, x)) < 1e-4


# --- threads and batches ----------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize("name", ["preresnet20", "resnet164", "resnet18", "preresnet50"])
@pytest.mark.parametrize("size", [(32, 32), (33, 35)])
def test_threads_and_batches_do_not_change_a_byte(threads, name, size):
    frozen = freeze(resnets.create(name, seed=0, blocks=1))
    x = images(64, *size)
    threads(1)
    wanted = frozen(x)
    for count in (1, 2, 3, 4):
        threads(count)
        for batch in (1, 2, 5, 64):
            for _ in range(3 if batch == 1 else 1):
                assert torch.equal(frozen(x[:batch]), wanted[:batch]), (count, batch)
        assert torch.equal(frozen(x[7:20]), wanted[7:20])


@needs_library
def test_calls_from_several_threads_at_once(threads):
    threads(2)
    frozen, other = small(), small(widths=(16, 32, 64))
    inputs = [images(1 + i % 3, 8 + i, 20 - i, seed=i) for i in range(8)]
    wanted = [(frozen(x), other(x)) for x in inputs]
    wrong = []

    def work():
        for _ in range(20):
            for x, (a, b) in zip(inputs, wanted, strict=True):
                if not (torch.equal(frozen(x), a) and torch.equal(other(x), b)):
                    wrong.append(x.shape)

    started = [threading.Thread(target=work) for _ in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not wrong


FORK = """
import os, torch, resnets
from resnets.engine.frozen import freeze
torch.set_num_threads(2)
frozen, x = freeze(resnets.create("preresnet20", seed=0, blocks=1)), torch.ones(3, 3, 16, 16)
wanted = frozen(x)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(frozen(x), wanted) else 1)
assert torch.equal(frozen(x), wanted)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_computes_too():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "0\n", done.stderr


# --- changes ----------------------------------------------------------------------------------


def scale_in_place(frozen):
    frozen.units[1].residual[1].weight.mul_(1.5)


def add_to_a_bias(frozen):
    with torch.no_grad():
        frozen.classifier.bias.add_(1)


def replace_a_buffer(frozen):
    frozen.units[2].last.weight = frozen.units[2].last.weight * 2


def load_others(frozen):
    frozen.load_state_dict({name: tensor * 1.25 for name, tensor in frozen.state_dict().items()})


def assign_others(frozen):
    frozen.load_state_dict({name: tensor * 1.25 for name, tensor in frozen.state_dict().items()}, assign=True)


def replace_the_classifier(frozen):
    frozen.classifier = nn.Linear(frozen.classifier.in_features, 10).requires_grad_(False)


def remove_a_relu(frozen):
    frozen.units[1].residual[1].relu = False


def replace_a_layer(frozen):
    frozen.units[1].residual[0] = nn.Tanh()


def append_a_layer(frozen):
    frozen.last.append(nn.Sigmoid())


def hook_a_unit(frozen):
    frozen.units[3].register_forward_hook(lambda module, inputs, output: output + 1)


def replace_a_forward(frozen):
    frozen.units[1].forward = lambda x: x


def turn_to_double(frozen):
    frozen.classifier.double()
    frozen.classifier.weight.data.mul_(1.25)
    frozen.classifier.float()


EDITS = (
    *(scale_in_place, add_to_a_bias, replace_a_buffer, load_others, assign_others, replace_the_classifier),
    *(remove_a_relu, replace_a_layer, append_a_layer, hook_a_unit, replace_a_forward, turn_to_double),
)


@needs_library
@pytest.mark.parametrize("edit", EDITS)
def test_a_change_takes_effect(edit):
    frozen, x = small(blocks=2), images(2, 16, 16)
    before = frozen(x)
    assert uses_library(frozen)
    edit(frozen)
    found, wanted = frozen(x), frozen._forward_layers(x)
    assert relative(found, wanted) < 1e-5
    assert relative(before, wanted) > 1e-3


@needs_library
def test_a_hook_on_the_network_itself_is_called_around_it():
    frozen, x = small(), images(1, 16, 16)
    wanted = frozen(x)
    frozen.register_forward_hook(lambda module, inputs, output: output + 1)
    assert torch.equal(frozen(x), wanted + 1)
    assert uses_library(frozen)
    frozen.units[0].last.weight.mul_(2)
    assert relative(frozen(x), wanted + 1) > 1e-3


@needs_library
def test_a_forward_replaced_in_a_class_takes_effect(monkeypatch):
    frozen, x = small(), images(2, 16, 16)
    before = frozen(x)
    monkeypatch.setattr(Conv, "forward", lambda self, x, plus=None: torch.zeros(len(x), len(self.weight), 4, 4))
    assert relative(frozen(x), frozen._forward_layers(x)) == 0
    monkeypatch.undo()
    assert torch.equal(frozen(x), before)


@needs_library
def test_the_library_is_used_again_when_a_hook_is_gone():
    frozen, x = small(), images(1, 16, 16)
    wanted, seen = frozen(x), []
    hook = frozen.units[0].register_forward_hook(lambda *_: seen.append(1))
    frozen(x)
    hook.remove()
    assert seen == [1]
    assert torch.equal(frozen(x), wanted)
    assert uses_library(frozen)


@needs_library
@pytest.mark.parametrize("reach", [
    lambda frozen: frozen.units, lambda frozen: list(frozen.modules()), lambda frozen: list(frozen.children()),
    lambda frozen: frozen.state_dict(), lambda frozen: list(frozen.buffers()), lambda frozen: frozen._modules["last"],
    lambda frozen: nn.Sequential(frozen).state_dict(), lambda frozen: frozen.get_submodule("units.1"), copy.copy,
    lambda frozen: frozen.apply(lambda module: None),
])  # fmt: skip
def test_layers_are_compared_as_soon_as_somebody_may_have_them(reach):
    frozen, x = small(), images(2, 16, 16)
    before = frozen(x)
    assert not frozen._reached
    frozen(x)
    frozen.to("cpu").eval()
    assert torch.equal(frozen(x), before)
    assert not frozen._reached
    held = reach(frozen)
    if isinstance(held, type(frozen)) and held is not frozen:
        assert held._reached
    else:
        assert frozen._reached
    assert torch.equal(frozen(x), before)
    held = frozen.units[1].last.weight
    frozen(x)
    held.mul_(2)
    assert relative(frozen(x), before) > 1e-3


@needs_library
def test_hooks_on_all_modules_see_all_of_them():
    frozen, seen = small(), []
    wanted = frozen(images(1, 16, 16))
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        found = frozen(images(1, 16, 16))
    finally:
        handle.remove()
    assert seen.count(Conv) == sum(isinstance(m, Conv) for m in frozen.modules())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@needs_library
def test_copies_share_no_memory_of_the_library():
    frozen, x = small(), images(2, 16, 16)
    wanted = frozen(x)
    for made in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert made._one_call is None
        assert torch.equal(made(x), wanted)
        scale_in_place(made)
        assert relative(made(x), made._forward_layers(x)) < 1e-5
        assert relative(made(x), wanted) > 1e-3
    assert torch.equal(frozen(x), wanted)


# --- what the library does not take ------------------------------------------------------------


@needs_library
@pytest.mark.parametrize(
    "context",
    [lambda: torch.autocast("cpu", torch.bfloat16), lambda: FlopCounterMode(display=False)],
    ids=["autocast", "a dispatch mode"],
)
def test_pytorch_computes_under(context):
    frozen, x = small(), images(2, 16, 16)
    with torch.no_grad(), context():
        found, wanted = frozen(x), frozen._forward_layers(x)
    assert torch.equal(found, wanted)
    assert frozen._one_call is None


@needs_library
@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)  # of PyTorch's own, in make_dual
def test_transforms_of_functions_are_left_to_pytorch():
    seen = []

    def look(x):
        seen.append(one_call.takes(x))
        return x

    x = images(2, 16, 16)
    torch.func.vmap(look)(x)
    with torch.autograd.forward_ad.dual_level():
        look(torch.autograd.forward_ad.make_dual(x, x))
    assert seen == [False] * 2
    assert look(x) is x
    assert seen[-1]


@needs_library
def test_frozen_in_inference_mode_it_uses_the_library():
    net, x = trained(), images(2, 16, 16)
    with torch.inference_mode():
        frozen = freeze(net)
        found = frozen(x)
    assert uses_library(frozen)
    assert torch.equal(freeze(net)(x), found)


def test_without_a_library_pytorch_computes(monkeypatch):
    monkeypatch.setattr(one_call, "load", lambda: Loaded(None, "no C++ compiler was found"))
    net, x = trained(order="full_preact"), images(2, 16, 16)
    frozen = freeze(net)
    assert relative(frozen(x), exact_scores(net, x)) < 1e-5
    assert not uses_library(frozen)


NO_COMPILER = """
import torch, resnets
from resnets.engine.frozen import freeze
net = resnets.create("preresnet20", seed=0, blocks=1).eval()
frozen, x = freeze(net), torch.ones(2, 3, 16, 16)
with torch.no_grad():
    torch.testing.assert_close(frozen(x), net(x), rtol=1e-4, atol=1e-5)
print(frozen._one_call.run)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_without_a_compiler_one_line_says_so(tmp_path):
    env = {**os.environ, "PATH": str(tmp_path), "CXX": "", "RESNETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", NO_COMPILER], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "None\n", done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no C++ compiler was found; PyTorch computes frozen networks layer by layer" in done.stderr


@needs_library
def test_a_library_that_computes_wrong_numbers_is_not_used(monkeypatch):
    library = load().library
    assert network._computes_correctly(library)
    right = type(library).run
    for change in (
        lambda scores: scores.zero_(),
        lambda scores: scores.add_(1e-3),
        lambda scores: scores.fill_(float("nan")),
    ):
        monkeypatch.setattr(
            type(library), "run", lambda self, *args, change=change: (right(self, *args), change(args[2]))
        )
        assert not network._computes_correctly(library)


def test_a_library_that_is_none_is_not_loaded(tmp_path):
    (tmp_path / "broken.so").write_bytes(b"not a library")
    with pytest.raises(NotBuiltError, match="does not load"):
        network._open(tmp_path / "broken.so")


# --- memory -----------------------------------------------------------------------------------


def plan(net: ResNet, side: int):
    frozen = freeze(net)
    frozen(images(1, side, side))
    return frozen._one_call.run._find_plan(side, side)


@needs_library
@pytest.mark.parametrize(
    ("kernels", "order"), [((3, 3), "original"), ((3, 3), "full_preact"), ((1, 3, 1), "full_preact")]
)
def test_memory_does_not_grow_with_depth(kernels, order):
    few, many = (
        sum(
            buffer.size
            for buffer in plan(resnets.create("resnet20", kernels=kernels, order=order, blocks=n), 32).buffers
        )
        for n in (3, 40)
    )
    assert few == many


@needs_library
def test_memory_does_not_grow_from_call_to_call(threads):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not tell")
    threads(2)
    frozen = freeze(resnets.create("preresnet20", seed=0, blocks=1))
    inputs = [images(n, side, side) for n in (1, 5, 17) for side in range(16, 40, 4)]
    for x in inputs * 2:
        frozen(x)
    before = resident()
    for x in inputs * 10:
        frozen(x)
    assert resident() - before < 8 << 20
    assert len(frozen._one_call.run._plans) <= 4


def test_buffers_of_maps_that_live_together_are_different():
    layers = Layers(3)
    x = layers.conv(IMAGES, torch.ones(8, 3, 3, 3), None, 1, 1)
    for _ in range(5):
        layers.keep(x)
        act = layers.scale_shift(x, torch.ones(8), torch.zeros(8), True)
        r = layers.relu(layers.conv(act, torch.ones(8, 8, 3, 3), None, 1, 1))
        x = layers.sum(x, layers.conv(r, torch.ones(8, 8, 3, 3), None, 1, 1))
    scores = layers.mean(x)
    room = Room(layers.steps, scores, [64] * len(layers.channels))
    assert len(room.buffers) == 4  # x, its activation, what conv1 made, and the scores
    for step in layers.steps:
        read = {room.place[m] for m in (step.x,) if m != IMAGES}
        made = [room.place[m] for m in (step.y, *([step.also.y] if step.also else ())) if room.place[m] >= 0]
        assert len(set(made)) == len(made)
        assert not read & set(made)


@needs_library
def test_a_sum_of_what_a_convolution_reads_is_not_written_over_it():
    layers, weight = Layers(3), torch.randn(8, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    x = layers.conv(IMAGES, torch.ones(8, 3, 1, 1), None)
    layers.keep(x)
    y = layers.sum(x, layers.conv(x, weight, None, 1, 1))
    given = images(2, 9, 9)
    maps = torch.nn.functional.conv2d(given, torch.ones(8, 3, 1, 1))
    wanted = (maps + torch.nn.functional.conv2d(maps, weight, padding=1)).mean((2, 3))
    torch.testing.assert_close(Network(load().library, layers, layers.mean(y))(given), wanted, rtol=1e-4, atol=1e-5)


@needs_library
@pytest.mark.parametrize("engine", ["auto", "frozen"])
def test_engines_use_it(engine):
    run = inference(resnets.create("resnet20", seed=0, **SMALL), engine)
    run(images(2, 16, 16))
    assert uses_library(run.scores)
