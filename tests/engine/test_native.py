"""The kernels against float64, and units run by them against plain PyTorch."""

import copy
import functools
import itertools

import pytest
import torch
from exactness import error, exact, gradients, spread
from test_modes import EVERY
from torch import nn
from torch.nn import functional
from variants import trained

from resnets.engine import MODES, prepare
from resnets.engine.native.branch import _Run
from resnets.engine.native.build import load
from resnets.engine.native.kernels import (
    ACT,
    ADD,
    ADD_RELU,
    AFFINE,
    LINEAR,
    MASK,
    OFFSET,
    OFFSET_RELU,
    PLAIN,
    RAW,
    RELU,
    GateMaps,
    Sink,
    Source,
    Window,
)
from resnets.engine.native.unit import NativeUnit, fits
from resnets.engine.native.units import NativeUnits
from resnets.unit_spec import ORDERS, parse_shortcut

KERNELS = load().kernels
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no kernels here: {load().how}")
LAST = torch.channels_last
NEAR = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(params=[1, 3])
def _threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def random(*shape, seed=0):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return made.contiguous(memory_format=LAST) if len(shape) == 4 else made


def sources(n, channels, height, width):
    """Each way in, and what it means in float64."""
    x, z = random(n, channels, height, width, seed=1), random(n, channels, height, width, seed=2)
    a, b, c, d = random(4, channels, seed=3)
    wide = [t.double().view(-1, 1, 1) for t in (a, b, c, d)]
    X, Z, (A, B, C, D) = x.double(), z.double(), wide
    return [
        (Source(RAW, x), X),
        (Source(ACT, x, a=a, d=d), (A * X + D).relu()),
        (Source(LINEAR, x, z, a, b, c, d), A * X + B * (Z - C) + D),
        (Source(RELU, x), X.relu()),
        (Source(AFFINE, x, a=a, d=d), A * X + D),
    ]


def check_sinks(run, shape, v):
    """Each way out, with and without sums, given what comes there."""
    h, m, q = (random(*shape, seed=s) for s in (4, 5, 6))
    a, c, d = random(3, shape[1], seed=7)
    minus, offset = (vector.double().view(-1, 1, 1) for vector in (c, d))
    mask = a.double().view(-1, 1, 1) * m.double() + d.double().view(-1, 1, 1) > 0
    for sink, wanted, other in (
        (Sink(PLAIN, sums=True), v, v),
        (Sink(PLAIN), v, None),
        (Sink(ADD, add=h, sums=True), v + h, v + h),
        (Sink(ADD_RELU, add=h), (v + h).relu(), None),
        (Sink(OFFSET, d=d), v + offset, None),
        (Sink(OFFSET, add=h, d=d), v + offset + h, None),
        (Sink(OFFSET_RELU, d=d), (v + offset).relu(), None),
        (Sink(OFFSET_RELU, add=h, d=d), (v + offset + h).relu(), None),
        (Sink(MASK, m=m, a=a, d=d, q=m, c=c, sums=True), v * mask, m - minus),
        (Sink(MASK, m=m, q=q, c=c, sums=True), v * (m > 0), q - minus),
        (Sink(MASK, m=m), v * (m > 0), None),
    ):
        y, sums = run(sink)
        torch.testing.assert_close(y.double(), wanted, **NEAR)
        assert (sums is None) == (other is None)
        if sums is not None:
            torch.testing.assert_close(sums[0], wanted.sum((0, 2, 3)), rtol=1e-4, atol=1e-3)
            torch.testing.assert_close(sums[1], (wanted * other).sum((0, 2, 3)), rtol=1e-4, atol=1e-3)


SHAPES = [(3, 16, 16, 8, 8), (2, 8, 24, 7, 5), (1, 40, 8, 1, 3), (5, 24, 136, 6, 2), (2, 8, 8, 90, 66)]


KINDS = [(1, 1), (3, 1), (1, 2), (3, 2), (7, 2), (5, 3)]  # side and stride


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(("shape", "kind"), [*itertools.product(SHAPES, KINDS)])
def test_convolutions(shape, kind):
    n, into, out, height, width = shape
    side, stride = kind
    weight = random(out, into, side, side, seed=8) / (side * into**0.5)
    filters = weight.double()
    for source, x in sources(n, into, height, width):
        y = functional.conv2d(x, filters, stride=stride, padding=side // 2)
        check_sinks(lambda sink, s=source: KERNELS.conv(s, weight, sink, stride=stride), y.shape, y)
    size = height, width
    for source, g in sources(n, out, *y.shape[2:]):
        of_x = nn.grad.conv2d_input((n, into, *size), filters, g, stride=stride, padding=side // 2)
        run = functools.partial(KERNELS.conv, source, weight, stride=stride, back_to=size)
        check_sinks(run, of_x.shape, of_x)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(("shape", "kind"), [*itertools.product(SHAPES, KINDS)])
def test_gradients_of_filters(shape, kind):
    n, into, out, height, width = shape
    side, stride = kind
    weight = random(out, into, side, side)
    small = ((size + 2 * (side // 2) - side) // stride + 1 for size in (height, width))
    for (left, x), (right, g) in itertools.product(sources(n, into, height, width), sources(n, out, *small)):
        wanted = nn.grad.conv2d_weight(x, weight.shape, g, stride=stride, padding=side // 2)
        assert error(KERNELS.conv_filters(left, right, weight, stride=stride), wanted) < 1e-6


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("shape", [(5, 96, 96, 9, 7), (3, 64, 136, 4, 4), (1, 128, 64, 2, 3), (40, 96, 88, 25, 28)])
def test_gradients_of_filters_that_leave_the_cache(shape):
    n, into, out, height, width = shape
    weight = random(out, into, 3, 3)
    for (left, x), (right, g) in zip(sources(n, into, height, width), sources(n, out, height, width), strict=True):
        wanted = nn.grad.conv2d_weight(x, weight.shape, g, padding=1)
        assert error(KERNELS.conv_filters(left, right, weight), wanted) < 2e-6


@pytest.mark.parametrize("sizes", [(48, 432, 48), (7, 8, 16), (192, 192, 1728), (100, 700, 40), (5, 6, 7)])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_matrices(sizes, turned):
    rows, k, columns = sizes
    a, b = torch.randn(rows, k), torch.randn(columns, k).mT if turned else torch.randn(k, columns)
    assert error(KERNELS.multiply(a, b), a.double() @ b.double()) < 1e-6
    assert error(KERNELS.multiply(a.mT.contiguous().mT, b), a.double() @ b.double()) < 1e-6


@pytest.mark.usefixtures("_threads")
def test_passes():
    for source, x in sources(3, 24, 19, 17):
        check_sinks(lambda sink, s=source: KERNELS.transform(s, sink), x.shape, x)
    nothing, sums = KERNELS.transform(Source(RAW, x := random(2, 8, 3, 3)), Sink(sums=True), keep=False)
    assert nothing.numel() == 0
    torch.testing.assert_close(sums[1], (x.double() ** 2).sum((0, 2, 3)), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("window", [(3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 3, 2)])
@pytest.mark.parametrize("size", [(7, 10), (12, 9), (5, 5)])
def test_max_pooling_is_pytorchs_to_the_bit(window, size):
    """With ties, infinities and what is no number; a gradient goes to the pixel that PyTorch chooses."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 24, *size, generator=draw).round().contiguous(memory_format=torch.channels_last)
    x[0, 3], x[1, :, 2, 3], x[2, 5, 1] = -torch.inf, torch.nan, torch.inf
    known = x.clone().requires_grad_()
    wanted = functional.max_pool2d(known, *window)
    grad = torch.randn(wanted.shape, generator=draw).contiguous(memory_format=torch.channels_last)
    wanted.backward(grad)
    found, places = KERNELS.max_pool(x, Window(*window))
    assert torch.equal(found.nan_to_num(9.0), wanted.detach().nan_to_num(9.0))
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(KERNELS.max_pool_backward(grad, places, x.shape, Window(*window)), known.grad)


def test_bn_of_a_batch():
    bn, x = nn.BatchNorm2d(16), random(4, 16, 6, 6).add_(3)
    nn.init.normal_(bn.weight, generator=torch.Generator().manual_seed(0))
    nn.init.normal_(bn.bias, generator=torch.Generator().manual_seed(1))
    twin = copy.deepcopy(bn).double()
    wanted_x = x.double().requires_grad_()
    wanted, g = twin(wanted_x), random(4, 16, 6, 6, seed=9)
    wanted.backward(g.double())
    _, sums = KERNELS.transform(Source(RAW, x), Sink(sums=True), keep=False)
    norm = KERNELS.norm_forward(bn, sums, 4 * 36)
    y, _ = KERNELS.transform(Source(AFFINE, x, a=norm.a, d=norm.d), Sink())
    torch.testing.assert_close(y.double(), wanted.detach(), **NEAR)
    for name, buffer in bn.named_buffers():
        torch.testing.assert_close(buffer.double(), twin.get_buffer(name).double(), rtol=1e-5, atol=1e-6)
    centered = x.double() - norm.c.double().view(-1, 1, 1)
    sums = torch.stack([g.double().sum((0, 2, 3)), (g.double() * centered).sum((0, 2, 3))])
    gamma, beta, a, b, d = KERNELS.norm_backward(bn, norm, sums, 4 * 36)
    of_x, _ = KERNELS.transform(Source(LINEAR, g, x, a, b, norm.c, d), Sink())
    for found, true in ((gamma, twin.weight.grad), (beta, twin.bias.grad), (of_x, wanted_x.grad)):
        torch.testing.assert_close(found.double(), true, **NEAR)


@pytest.mark.parametrize("exclusive", [False, True])
def test_the_relu_behind_a_gate_is_pytorchs_to_the_bit(exclusive):
    z, x, r, grad = (random(3, 16, 5, 7, seed=seed) for seed in range(4))
    bias = random(16, seed=4)
    z[0, 1, 2, 3] = x[1, 2, 3, 4] = torch.nan
    before = KERNELS.gate(GateMaps(exclusive, False, z, bias, x, r)).requires_grad_()
    wanted = functional.relu(before)
    wanted.backward(grad)
    maps = GateMaps(exclusive, True, z, bias, x, r)
    y = KERNELS.gate(maps)
    assert torch.equal(y.isnan(), wanted.isnan())
    assert y.isnan().sum() == 2
    assert torch.equal(y.nan_to_num(9.0), wanted.detach().nan_to_num(9.0))
    found = KERNELS.gate_backward(maps, y, grad)
    known = KERNELS.gate_backward(GateMaps(exclusive, False, z, bias, x, r), None, before.grad)
    for ours, theirs in zip(found, known, strict=True):
        assert torch.equal(ours.nan_to_num(9.0), theirs.nan_to_num(9.0))


def test_relu_lets_what_is_no_number_pass():
    """In every way in and out that has one, as PyTorch's, forward and for gradients."""
    x = random(2, 16, 4, 4)
    x[0, 3, 1, 1] = torch.nan
    one, zero = torch.ones(16), torch.zeros(16)
    for source in (Source(RELU, x), Source(ACT, x, a=one, d=zero)):
        assert torch.equal(KERNELS.transform(source, Sink())[0].isnan(), x.isnan())
    flat = torch.zeros_like(x)
    for sink in (Sink(ADD_RELU, add=flat), Sink(OFFSET_RELU, d=zero), Sink(MASK, m=x, a=one, d=zero), Sink(MASK, m=x)):
        assert torch.equal(KERNELS.transform(Source(RAW, x), sink)[0].isnan(), x.isnan())


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize(
    "changes",
    [*({"order": order} for order in ORDERS), {"shortcut": "exclusive_gate:-1"}, {"resize": "project"}],
    ids=str,
)
def test_a_network_that_has_diverged_says_so(changes, memory):
    """One weight that is no number reaches the scores and the gradients, as in plain PyTorch."""
    net = trained(**{"order": "original", "widths": (8, 16, 24), **changes})
    with torch.no_grad():
        next(m for m in net.units[1].modules() if isinstance(m, nn.Conv2d)).weight[0, 0, 0, 0] = torch.nan
    plain = copy.deepcopy(net)
    for model, layers in ((prepare(net, memory=memory), net), (plain, plain)):
        scores = model(random(4, 3, 16, 16, seed=1))
        scores.sum().backward()
        assert scores.isnan().all()
        assert layers.stem.conv.weight.grad.isnan().all()


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("order", ORDERS)
def test_one_value_per_channel_is_refused_as_by_pytorch(order, memory):
    net = trained(order=order, widths=(8, 16, 24), blocks=3)
    for model in (net, prepare(net, memory=memory)):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
            model(random(1, 3, 4, 4))


def test_units_in_a_row_refuse_one_value_per_channel():
    net = trained(order="full_preact", widths=(8, 16, 24), blocks=3)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        NativeUnits([NativeUnit(unit, KERNELS) for unit in net.units[1:3]]).with_sums(random(1, 8, 1, 1), None)


def compared(options, seed):
    """The error of units run by the kernels, and of the network itself; both nets after the step."""
    net = trained(**{**options, "widths": tuple(16 * (i + 1) for i in range(len(options.get("widths", "123"))))})
    assert all(fits(unit) is None for unit in net.units)
    plain, true = copy.deepcopy(net), exact(net, seed)
    runs = [NativeUnit(unit, KERNELS) for unit in net.units]

    def model(x):
        x, sums = net.stem(x), None
        for run in runs:
            x, sums = run.with_sums(x, sums)
        return net.forward_head(net.last(x))

    ours = spread(gradients(model, net, seed=seed), true)
    return ours, spread(gradients(plain, plain, seed=seed), true), net, plain


NARROW = "one channel, one stage"


@pytest.mark.parametrize("variant", [v for v in EVERY if v != NARROW])
def test_units_are_as_near_to_float64_as_those_of_plain_pytorch(variant):
    # A number next to 0 may fall on either side of a ReLU in float32: of three batches the one in the middle counts.
    ratios = []
    for seed in (2, 3, 4):
        ours, theirs, net, plain = compared(EVERY[variant], seed)
        ratios.append((ours - 5e-7) / (theirs + 1e-12))
        for (key, a), b in zip(net.state_dict().items(), plain.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=key)
    assert sorted(ratios)[1] <= 2


def test_winograds_filters_are_rounded_once_more():
    """Where errors cancel, so that plain PyTorch is more exact than a single float32, the kernels are not."""
    ours, _, _, _ = compared(EVERY[NARROW], 2)
    assert ours < 1e-4


@pytest.mark.parametrize(("order", "kept"), [("full_preact", 2), ("original", 4)])
def test_a_unit_keeps_its_input_and_what_its_convolutions_produced(order, kept):
    unit = trained(order=order, widths=(8, 16, 24)).units[1]
    x = random(2, 8, 6, 6).requires_grad_()
    maps = []

    def keep(tensor):
        if tensor.dim() == 4 and tensor.shape[0] == 2:
            maps.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        NativeUnit(unit, KERNELS)(x)
    assert len(maps) == kept  # of the original unit also its output, which is the next one's input


def test_other_numbers_and_frozen_units_are_left_to_pytorch(monkeypatch):
    def refuse(*_):
        raise AssertionError("the kernels were run")

    monkeypatch.setattr(_Run, "apply", refuse)
    net = trained(order="full_preact", widths=(8, 16, 24))
    x = random(2, 8, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        NativeUnit(net.units[1], KERNELS)(x)
    net.units[1].residual.act1.eval()
    torch.testing.assert_close(NativeUnit(net.units[1], KERNELS)(x), net.units[1](x))
    double = copy.deepcopy(net.units[2]).double()
    torch.testing.assert_close(NativeUnit(double, KERNELS)(x.double()), double(x.double()))


def test_channels_that_do_not_fill_vectors_do_not_fit():
    assert "8" in str(fits(trained(widths=(8, 12, 16)).units[2]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["full_preact", "original"])
def test_prepared_networks_in_every_mode(mode, order):
    ratios = []
    for seed in (2, 3, 4):
        net = trained(order=order, widths=(16, 32, 48), blocks=4)
        before = int(net.last.bn.num_batches_tracked) if order == "full_preact" else 3
        plain, true = copy.deepcopy(net), exact(net, seed)
        model = prepare(net, memory=mode)
        assert {choice.runner for choice in model.choices} == {"native"}
        ours, theirs = gradients(model, net, seed=seed), gradients(plain, plain, seed=seed)
        ratios.append((spread(ours, true) - 5e-7) / spread(theirs, true))
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
        assert {int(norm.num_batches_tracked) for norm in norms} == {before + 1}
    assert sorted(ratios)[1] <= 2


def test_dropout_masks_are_drawn_the_same_when_a_segment_is_run_again():
    net = trained(order="full_preact", shortcut=parse_shortcut("dropout:0.5"), widths=(8, 16, 24), blocks=3)
    twin = copy.deepcopy(net)
    for ours, theirs in zip(gradients(prepare(net, memory="min"), net), gradients(twin, twin), strict=True):
        assert error(ours, theirs) < 1e-4
