"""A training step and a test give the same bytes on any number of threads, which may follow the load."""

import concurrent.futures
import os
import signal

import pytest
import torch
from torch.nn import functional

import resnets
from resnets.engine import freeze, prepare, set_threads
from resnets.engine.native.build import load
from resnets.engine.native.kernels import ACT, ADD, MASK, RAW, Kernels, Sink, Source
from resnets.engine.threads import Follower, Threads, count_threads, follow, hold
from resnets.errors import UserError
from resnets.training.muon import Muon
from resnets.unit_spec import ORDERS

THREADS = (1, 2, 3, 4)
pytestmark = pytest.mark.skipif(load().kernels is None, reason="the kernels are not compiled here")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def numbers(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else x


@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize(
    ("n", "size", "into", "out"), [(7, 9, 16, 16), (33, 8, 64, 64), (2, 32, 16, 32), (1, 1, 8, 8), (3, 5, 256, 128)]
)
def test_convolutions_and_their_gradients(threads, side, n, size, into, out):
    kernels = load().kernels
    x, g, weight = (
        numbers(n, into, size, size),
        numbers(n, out, size, size, seed=1),
        numbers(out, into, side, side, seed=2),
    )
    a, d = numbers(into, seed=3), numbers(into, seed=4)
    found = []
    for count in THREADS:
        threads(count)
        act = Source(ACT, x, a=a, d=d)
        y, sums = kernels.conv(act, weight, Sink(ADD, add=g, sums=True))
        back, others = kernels.conv(
            Source(RAW, g), weight, Sink(MASK, m=x, a=a, d=d, q=x, c=d, sums=True), back_to=(size, size)
        )
        found.append((y, sums, back, others, kernels.conv_filters(act, Source(RAW, g), weight)))
    for other in found[1:]:
        assert all(torch.equal(first, again) for first, again in zip(found[0], other, strict=True))


def test_sums_of_a_map(threads):
    kernels, x = load().kernels, numbers(19, 24, 13, 11)
    found = []
    for count in THREADS:
        threads(count)
        found.append(kernels.transform(Source(RAW, x), Sink(sums=True), keep=False)[1])
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert torch.allclose(found[0][0], x.double().sum((0, 2, 3)))
    assert isinstance(kernels, Kernels)


# --- networks ---------------------------------------------------------------------------------

WIDE = {"widths": (8, 16, 24), "blocks": 2}
NETS = {
    "preresnet20": ("preresnet20", {}),
    "resnet56": ("resnet56", {}),
    "preresnet164": ("preresnet164", {}),
    "preresnet164, projections": ("preresnet164", {"resize": "project"}),
    "plain20": ("plain20", {}),
    **{order: ("resnet20", {**WIDE, "order": order}) for order in ORDERS},
    **{
        shortcut: ("resnet20", {**WIDE, "shortcut": shortcut})
        for shortcut in ("scale:0.5:0.5", "exclusive_gate:-1", "shortcut_gate:-1", "conv1x1", "dropout:0.5", "plain")
    },
    "option A by pooling": ("resnet20", {**WIDE, "resize": "pad_pool"}),
    "large stem": ("resnet20", {**WIDE, "stem": "imagenet"}),
}


def step(model, net, x, labels):
    """Everything that a step of SGD leaves."""
    torch.manual_seed(5)  # for dropout
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    out = model(x)
    loss = functional.cross_entropy(out, labels, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    return [out.detach(), loss.detach(), *(t.detach().clone() for t in net.state_dict().values())]


@pytest.mark.parametrize("memory", ["fast", "lean", "min"])
@pytest.mark.parametrize("name", NETS)
def test_a_training_step(threads, name, memory):
    named, changes = NETS[name]
    x, labels = numbers(24, 3, 16, 16), torch.arange(24) % 10
    found = []
    for count in THREADS:
        threads(count)
        net = resnets.create(named, seed=0, **changes).to(memory_format=torch.channels_last).train()
        model = prepare(net, memory=memory)
        assert model.find_thread_dependence() is None
        found.append(step(model, net, x, labels))
    for other in found[1:]:
        assert all(torch.equal(first, again) for first, again in zip(found[0], other, strict=True))


@pytest.mark.parametrize("name", ["preresnet20", "resnet20"])
def test_testing(threads, name):
    net, x = resnets.create(name, seed=0).eval(), numbers(7, 3, 33, 30)
    found = []
    for count in THREADS:
        threads(count)
        found.append(freeze(net)(x))
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("kernels", [load().kernels, None], ids=["kernels", "pytorch"])
def test_the_steps_of_muon(kernels):
    shapes = (16, 16, 3, 3), (256, 256, 3, 3), (512, 128, 1, 1), (16, 16, 3, 3), (64, 32, 3, 3)
    found = []
    for count in THREADS:
        banks = [torch.nn.Parameter(numbers(*shape, seed=i)) for i, shape in enumerate(shapes)]
        muon = Muon([{"params": banks, "filters": True}], 0.1, 0.9, kernels)
        with Threads(count):
            for seed in (7, 8):
                follow("a step")
                for bank in banks:
                    bank.grad = numbers(*bank.shape, seed=seed)
                muon.step()
        found.append(banks)
    for other in found[1:]:
        assert all(torch.equal(first, again) for first, again in zip(found[0], other, strict=True))


def test_what_pytorch_runs_says_so():
    odd = prepare(resnets.create("resnet20", seed=0, widths=(4, 6, 8)).train())
    assert "unit 0" in odd.find_thread_dependence()
    changed = resnets.create("resnet20", seed=0).train()
    changed.stem.conv.register_forward_hook(lambda *_: None)
    assert prepare(changed).find_thread_dependence() == "PyTorch runs the stem"


# --- following the load -----------------------------------------------------------------------


class Machine:
    """Steps whose time depends on the number of threads, on a clock of its own."""

    def __init__(self, most, seconds):
        self.time, self.used, self.seconds = 0.0, [], seconds
        self.follower = Follower(most, clock=lambda: self.time, apply=self.used.append)

    def run(self, steps, key="train"):
        before = len(self.used)
        for _ in range(steps):
            self.follower.tick(key)
            self.time += self.seconds[self.used[-1]]
        return self.used[before:]


def test_an_idle_machine_uses_all_cores_nearly_always():
    machine = Machine(2, {1: 0.17, 2: 0.1})
    used = machine.run(2000)
    assert machine.follower.count == 2
    assert used.count(1) <= 0.01 * len(used)


def test_the_number_follows_a_neighbour_and_comes_back():
    machine = Machine(2, {1: 0.17, 2: 0.1})
    machine.run(50)
    machine.seconds = {1: 0.17, 2: 0.3}
    machine.run(10)
    assert machine.follower.count == 1
    used = machine.run(1000)
    assert used.count(2) <= 0.1 * len(used)
    machine.seconds = {1: 0.17, 2: 0.1}
    machine.run(60)
    assert machine.follower.count == 2


def test_steps_of_another_kind_are_not_compared():
    machine = Machine(2, {1: 0.17, 2: 0.1})
    machine.run(30)
    machine.seconds = {1: 1.7, 2: 1.0}
    assert machine.run(3, key="larger images") == [2] * 3
    assert machine.follower.count == 2


def test_four_cores_try_half_of_them_too():
    machine = Machine(4, {1: 0.4, 2: 0.25, 3: 0.5, 4: 0.6})
    machine.run(40)
    assert machine.follower.count == 2


def test_threads_are_given_back(threads):
    threads(2)
    with Threads("auto"):
        follow("a step")
        assert torch.get_num_threads() == 1  # PyTorch's, while the kernels have theirs
        assert count_threads() in (1, 2)
        hold()
        assert torch.get_num_threads() == count_threads() == 2
        with Threads(1):
            follow("a step")
            assert count_threads() == 1
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == count_threads() == 2
    with pytest.raises(UserError, match="auto or a whole number from 1 to 1024, not 'all'"):
        set_threads("all")


def test_a_user_in_another_thread_of_python_gets_the_same_bytes(threads):
    """The team serves one call at a time; another call is computed by its own thread."""
    threads(2)
    kernels, x, weight = load().kernels, numbers(16, 16, 16, 16), numbers(16, 16, 3, 3, seed=1)
    wanted, _ = kernels.conv(Source(RAW, x), weight, Sink())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(kernels.conv, Source(RAW, x), weight, Sink()) for _ in range(64)]
        assert all(torch.equal(run.result()[0], wanted) for run in runs)


def test_a_forked_process_has_a_team_of_its_own(threads):
    threads(2)
    kernels, x, weight = load().kernels, numbers(16, 16, 16, 16), numbers(16, 16, 3, 3, seed=1)
    wanted, _ = kernels.conv(Source(RAW, x), weight, Sink())
    child = os.fork()
    if not child:  # where PyTorch's own threads do not work
        signal.alarm(30)
        again, _ = kernels.conv(Source(RAW, x), weight, Sink())
        os._exit(0 if again.numpy().tobytes() == wanted.numpy().tobytes() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
