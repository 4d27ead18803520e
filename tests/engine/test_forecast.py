"""The memory of a step, foretold: counted, cut, compared with what is there."""

import itertools
import os
import sys

import pytest
import torch
from torch.nn import functional
from variants import trained

from resnets.engine import MODES, prepare
from resnets.engine import system_memory as available
from resnets.engine.activation_memory import ActivationMemory, measure
from resnets.engine.memory_estimate import forecast, segments
from resnets.engine.segments import Part, cut, peak
from resnets.errors import UserError
from resnets.zoo import spec_of

# --- the ledger -------------------------------------------------------------------------------


def test_the_ledger_counts_maps_while_they_live():
    with ActivationMemory(2) as ledger:
        x = torch.zeros(2, 3, 4, 5)
        assert ledger.live == x.nbytes
        y = x.view(2, 5, 4, 3).relu()
        weights = torch.zeros(7, 3, 4, 5)
        assert ledger.live == 2 * x.nbytes
        del x
        assert ledger.live == y.nbytes
        del y
    assert (ledger.live, ledger.most) == (0, 2 * 2 * 3 * 4 * 5 * 4)
    assert weights.numel()


@pytest.mark.parametrize("mode", ["fast", "lean"])
@pytest.mark.parametrize("changes", [{}, {"order": "full_preact", "kernels": (1, 3, 1)}, {"shortcut": "dropout"}])
def test_what_is_counted_on_a_short_net_is_what_a_long_one_keeps(mode, changes):
    """The oracle counts the storages that autograd keeps on a net of the full depth, on larger images."""
    spec = spec_of("resnet110", widths=(4, 6, 8), blocks=(5, 4, 6), **changes)
    net = trained(**{k: getattr(spec, k) for k in ("blocks", "order", "kernels", "shortcut")})
    counted = measure(net.spec, mode)
    x = torch.randn(3, 3, 24, 24)
    kept = {}
    own = {t.untyped_storage().data_ptr() for t in (*net.parameters(), *net.buffers())}

    def keep(tensor):
        if tensor.dim() == 4:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = prepare(net, memory=mode)(x)
    theirs = sum(size for place, size in kept.items() if place not in own) - x.nbytes
    parts = [counted.stem, *counted.units, counted.end]
    images = 4 * 3 * counted.pixels
    ours = (sum(part.kept for part in parts) - images) * x.shape[0] * x.shape[2] * x.shape[3] / counted.pixels
    assert ours == pytest.approx(theirs, rel=0.05)
    assert out.shape == (3, 10)


# --- the cut ----------------------------------------------------------------------------------


def held(units, lengths):
    """The most that segments hold, counted anew: each one's inputs twice, and its own units."""
    most = inputs = first = 0
    for length in lengths:
        own = units[first : first + length]
        most = max(most, inputs + peak(own))
        first += length
        inputs += 2 * own[-1].output
    return most


@pytest.mark.parametrize("seed", range(5))
def test_no_other_cut_holds_less(seed):
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randint(1, 20, (9, 3), generator=draw).tolist()
    outputs = sorted((o for *_, o in numbers), reverse=True)  # maps only get smaller
    units = [Part(kept, passing, output) for (kept, passing, _), output in zip(numbers, outputs, strict=True)]
    lengths, limit = cut(units, places=2)
    assert sum(lengths) == 9
    assert held(units, lengths) <= limit
    ways = itertools.product((False, True), repeat=8)
    best = min(held(units, [len(list(g)) for g in _groups(way)]) for way in ways)
    assert limit == best


def _groups(way):
    """The units between cuts."""
    group = [0]
    for i, here in enumerate(way, 1):
        if here:
            yield group
            group = []
        group.append(i)
    yield group


def test_one_unit_is_one_segment():
    assert cut([Part(3, 2, 1)]) == ((1,), 5)


def test_segments_grow_as_the_root_of_the_depth():
    counts = {units: len(segments(spec_of("resnet20", widths=(4,), blocks=(units,)))) for units in (16, 64, 256)}
    assert counts[256] / counts[16] == pytest.approx(4, rel=0.4)
    assert counts[64] / counts[16] == pytest.approx(2, rel=0.4)


# --- the forecast -----------------------------------------------------------------------------


def test_more_images_more_pixels_and_more_layers_take_more():
    spec, deeper = (spec_of(name, widths=(4, 8, 8)) for name in ("preresnet20", "preresnet56"))
    for mode in MODES:
        base = forecast(spec, 16, 32, mode)
        assert base.maps < forecast(spec, 17, 32, mode).maps < forecast(spec, 16, 40, mode).maps
        assert base.maps < forecast(deeper, 16, 32, mode).maps
        assert base.weights < forecast(deeper, 16, 32, mode).weights
        assert forecast(spec, 16, (16, 64), mode).maps == base.maps
        assert forecast(spec, 16, None, mode).maps == base.maps
        assert base.total == base.base + base.weights + base.maps


def test_a_deep_net_takes_less_and_less():
    spec = spec_of("preresnet1001", widths=(4, 6, 10))
    fast, lean, least = (forecast(spec, 64, 32, mode).maps for mode in MODES)
    assert lean < 0.6 * fast
    assert least < 0.5 * lean


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0,), "batch must be a whole number of at least 1, not 0"),
        ((True,), "batch must be"),
        ((2.5,), "batch must be"),
        ((8, -32), "size must be a whole number of at least 1, not -32"),
        ((8, (32, 0)), "size must be"),
        ((8, 32, "auto"), "memory"),
    ],
)
def test_nonsense_is_refused(arguments, words):
    with pytest.raises(UserError, match=words):
        forecast(spec_of("resnet20"), *arguments)


def test_counting_leaves_the_random_numbers_alone():
    spec = spec_of("resnet20", widths=(4, 6, 8), shortcut="dropout", bn_momentum=0.2)  # not counted before
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    forecast(spec, 2, 32, "min")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_it_holds_for_the_loss_too():
    """The classifier's part is small enough to be left out."""
    net = trained(order="full_preact")
    with ActivationMemory(4) as ledger:
        x = torch.zeros(4, 3, 32, 32)
        functional.cross_entropy(prepare(net)(x), torch.zeros(4, dtype=torch.long)).backward()
    counted = measure(net.spec, "fast")
    told = peak([counted.stem, *counted.units]) * 4 * 32 * 32 / counted.pixels
    assert told == pytest.approx(ledger.most, rel=0.05)


# --- what there is ----------------------------------------------------------------------------


@pytest.fixture
def files(monkeypatch):
    """Files of the kernel, by path."""
    found = {}
    monkeypatch.setattr(available, "_text", lambda path: found.get(str(path), ""))
    monkeypatch.setattr(sys, "platform", "linux")
    return found


MEMINFO = "MemTotal:       32000 kB\nMemFree:        100 kB\nMemAvailable:   20000 kB\n"


def test_the_kernel_says_what_is_available(files):
    files["/proc/meminfo"] = MEMINFO
    assert available.available("cpu") == 20000 << 10


@pytest.mark.parametrize("limited", ["/user/job", "/user", ""])
def test_a_group_of_version_2_limits_it(files, limited):
    files |= {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": "0::/user/job\n"}
    files |= {f"/sys/fs/cgroup{path}/memory.max": "max\n" for path in ("/user/job", "/user", "")}
    files |= {
        f"/sys/fs/cgroup{limited}/memory.max": "5000\n",
        f"/sys/fs/cgroup{limited}/memory.current": "3000\n",
        f"/sys/fs/cgroup{limited}/memory.stat": "anon 2000\ninactive_file 600\n",
    }
    assert available.available("cpu") == 5000 - 3000 + 600


def test_a_group_of_version_1_limits_it(files):
    files |= {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/job\n"}
    files |= {
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9000",
        "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "10000",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
    }
    assert available.available("cpu") == 0


def test_elsewhere_it_is_all_there_is(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert available.available("cpu") == 409600


def test_where_nobody_says_it_is_not_known(files, monkeypatch):
    assert available.available("cpu") is None
    assert available.available("mps") is None
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "sysconf")
    assert available.available("cpu") is None


def test_this_process_has_something_in_memory():
    assert available.held() > 50 << 20
