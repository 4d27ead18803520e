"""Every order, kernel and shortcut against its equation, written out in float64, forward and gradient."""

import itertools

import pytest
import torch
from torch import Tensor, nn

import resnets
from resnets.nn import Unit
from resnets.nn.unit import Residual
from resnets.unit_spec import KERNELS, ORDERS

# The layers of F, a bar for the addition, the layers of f: figure 4 of the v2 paper, and its bottleneck and
# one-layer forms. "c" is a convolution, "b" BN, "r" ReLU.
FIGURE_4 = {
    ("original", "basic"): "c b r c b | r",
    ("original", "bottleneck"): "c b r c b r c b | r",
    ("original", "one_layer"): "c b | r",
    ("bn_after_add", "basic"): "c b r c | b r",
    ("bn_after_add", "bottleneck"): "c b r c b r c | b r",
    ("bn_after_add", "one_layer"): "c | b r",
    ("relu_before_add", "basic"): "c b r c b r |",
    ("relu_before_add", "bottleneck"): "c b r c b r c b r |",
    ("relu_before_add", "one_layer"): "c b r |",
    ("relu_preact", "basic"): "r c b r c b |",
    ("relu_preact", "bottleneck"): "r c b r c b r c b |",
    ("relu_preact", "one_layer"): "r c b |",
    ("full_preact", "basic"): "b r c b r c |",
    ("full_preact", "bottleneck"): "b r c b r c b r c |",
    ("full_preact", "one_layer"): "b r c |",
}
SHORTCUTS = [
    resnets.Identity(),
    resnets.Scale(0.5, 1.0),
    resnets.Scale(0.3, 0.7),
    resnets.ExclusiveGate(-1.0),
    resnets.ShortcutGate(-1.0),
    resnets.Conv1x1(),
    resnets.Dropout(0.5),
    resnets.Plain(),
]


def batch_norm(x: Tensor, layer: nn.BatchNorm2d, training: bool) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, over the batch, or with the running statistics."""
    mean = x.mean((0, 2, 3)) if training else layer.running_mean
    var = ((x - x.mean((0, 2, 3))[:, None, None]) ** 2).mean((0, 2, 3)) if training else layer.running_var
    scale = layer.weight / torch.sqrt(var + layer.eps)
    return (x - mean[:, None, None]) * scale[:, None, None] + layer.bias[:, None, None]


def convolve(x: Tensor, layer: nn.Conv2d) -> Tensor:
    """A convolution as a sum over its taps: shifted maps times one matrix each."""
    k, stride = layer.kernel_size[0], layer.stride[0]
    padded = torch.zeros(*x.shape[:2], x.shape[2] + k - 1, x.shape[3] + k - 1, dtype=x.dtype)
    padded[:, :, k // 2 : k // 2 + x.shape[2], k // 2 : k // 2 + x.shape[3]] = x
    out = 0
    for i, j in itertools.product(range(k), repeat=2):
        shifted = padded[:, :, i : i + x.shape[2] : stride, j : j + x.shape[3] : stride]
        out = out + torch.einsum("oc,nchw->nohw", layer.weight[:, :, i, j], shifted)
    return out


def apply(letters: str, x: Tensor, modules, training: bool) -> Tensor:
    convs = (m for m in modules if isinstance(m, nn.Conv2d))
    norms = (m for m in modules if isinstance(m, nn.BatchNorm2d))
    for letter in letters.split():
        if letter == "c":
            x = convolve(x, next(convs))
        elif letter == "b":
            x = batch_norm(x, next(norms), training)
        else:
            x = x * (x > 0)
    assert next(convs, None) is None
    assert next(norms, None) is None
    return x


def random_unit(changes: dict, into: int, stride: int, first: bool = False, width: int = 6) -> Unit:
    """A unit in float64 with no parameter left at a special value."""
    if stride == 1:
        active = first or changes.get("order") not in ("full_preact", "relu_preact")
        net = resnets.spec_of("resnet20", stem_width=into, widths=(width,), blocks=1, stem_activation=active, **changes)
    else:
        before = into // (4 if changes.get("kernels") == "bottleneck" else 1)
        net = resnets.spec_of("resnet20", widths=(before, width), blocks=1, **changes)
    unit = Unit(net.units()[-1]).double()
    assert (unit.spec.into, unit.spec.stride) == (into, stride)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in unit.named_parameters():
            p.normal_(1.0 if name.endswith("bn.weight") else 0.0, 0.3)
        for name, b in unit.named_buffers():
            if b.is_floating_point():
                b.uniform_(0.5, 1.5) if name.endswith("var") else b.normal_()
    return unit


def assert_same(ours: Tensor, theirs: Tensor, inputs: list[Tensor]) -> None:
    """Equal outputs, and equal gradients of a random projection of them with respect to all inputs."""
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    direction = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(1))
    kwargs = {"allow_unused": True, "retain_graph": True}
    for a, b in zip(
        torch.autograd.grad(ours, inputs, direction, **kwargs),
        torch.autograd.grad(theirs, inputs, direction, **kwargs),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def image(channels: int, requires_grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(3, channels, 5, 7, dtype=torch.float64, generator=generator).requires_grad_(requires_grad)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("order", "block"), FIGURE_4)
def test_an_order_is_its_row_of_figure_4(order, block, training):
    width = 4
    unit = random_unit({"order": order, "kernels": block}, width * (4 if block == "bottleneck" else 1), 1, width=width)
    unit.train(training)
    x = image(unit.residual.conv1.in_channels)
    residual, after = FIGURE_4[order, block].split("|")
    r = apply(residual, x, list(unit.residual.modules()), training)
    expected = apply(after, x + r, list(unit.after.modules()), training)
    assert_same(unit(x), expected, [x, *unit.parameters()])


def test_figure_4_covers_all():
    assert set(FIGURE_4) == set(itertools.product(ORDERS, KERNELS))


def equation(shortcut, unit: Unit, x: Tensor, r: Tensor, training: bool) -> Tensor:  # noqa: PLR0911
    """The papers' formulas of h(x) and its meeting with r."""

    def g() -> Tensor:
        gate = unit.shortcut.gate
        return 1 / (1 + torch.exp(-(convolve(x, gate) + gate.bias[:, None, None])))

    match shortcut:
        case resnets.Identity():
            return x + r
        case resnets.Scale(a, b):
            return a * x + b * r
        case resnets.ExclusiveGate():
            return (1 - g()) * x + g() * r
        case resnets.ShortcutGate():
            return (1 - g()) * x + r
        case resnets.Conv1x1():
            return r + apply("c b", x, list(unit.resize.modules()), training)
        case resnets.Dropout(p):
            assert not training, "the mask is random: tested apart"
            return (1 - p) * x + r
    return r


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=str)
def test_a_shortcut_is_its_equation(shortcut, training):
    if training and isinstance(shortcut, resnets.Dropout):
        pytest.skip("the mask is random: tested apart")
    unit = random_unit({"shortcut": shortcut}, 6, 1).train(training)
    x = image(6)
    r = apply("c b r c b", x, list(unit.residual.modules()), training)
    y = equation(shortcut, unit, x, r, training)
    assert_same(unit(x), y * (y > 0), [x, *unit.parameters()])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=str)
def test_shortcuts_read_the_resized_x(shortcut, stride):
    unit = random_unit({"shortcut": shortcut}, 4, stride).eval()
    x = image(4)
    r = apply("c b r c b", x, list(unit.residual.modules()), False)
    resized = x
    if not isinstance(shortcut, (resnets.Plain, resnets.Conv1x1)):
        resized = torch.cat([x[:, :, ::stride, ::stride], torch.zeros(3, 2, *r.shape[2:], dtype=x.dtype)], 1)
    y = equation(shortcut, unit, resized, r, False)
    assert_same(unit(x), y * (y > 0), [x, *unit.parameters()])


def test_the_dropout_shortcut_masks_without_rescaling():
    """Expectation 1 - p in training, exactly 1 - p in testing: the scale of equation (7)."""
    x, r = torch.ones(64, 4, 16, 16), torch.zeros(64, 4, 16, 16)
    drop = random_unit({"shortcut": resnets.Dropout(0.3)}, 6, 1).shortcut
    assert set(drop(x, r).unique().tolist()) == {0.0, 1.0}
    assert drop(x, r).mean().item() == pytest.approx(0.7, abs=0.01)
    assert torch.equal(drop.eval()(x, r), 0.7 * x)

    rescaled = random_unit({"shortcut": resnets.Dropout(0.5, rescale=True)}, 6, 1).shortcut
    assert set(rescaled(x, r).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(rescaled.eval()(x, r), x)


@pytest.mark.parametrize("size", [(8, 8), (5, 7)])
@pytest.mark.parametrize("form", ["pad", "pad_both", "pad_pool"])
def test_option_a_has_three_forms(form, size):
    unit = random_unit({"resize": form}, 3, 2, width=8)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    out = unit.resize(x)
    front = {"pad": 0, "pad_both": 2, "pad_pool": 0}[form]
    rows, columns = (size[0] + 1) // 2, (size[1] + 1) // 2
    assert out.shape == (2, 8, rows, columns)
    assert torch.equal(out, torch.nn.functional.pad(out[:, front : front + 3], (0, 0, 0, 0, front, 5 - front)))
    for i, j in itertools.product(range(rows), range(columns)):
        window = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        expected = window.mean((2, 3)) if form == "pad_pool" else window[:, :, 0, 0]
        torch.testing.assert_close(out[:, front : front + 3, i, j], expected)
    assert not list(unit.resize.parameters())


@pytest.mark.parametrize("order", ORDERS)
def test_a_projection_reads_what_the_residual_reads(order):
    """Option B: in pre-activation units the head activation moves in front of the split, for both paths."""
    unit = random_unit({"order": order, "resize": "project"}, 4, 2).train()
    x = image(4)
    before = {"full_preact": "b r", "relu_preact": "r"}.get(order, "")
    shared = apply(before, x, list(unit.shared.modules()), True)
    residual, after = FIGURE_4[order, "basic"].split("|")
    r = apply(residual.removeprefix(before), shared, list(unit.residual.modules()), True)
    projected = apply("c" if order == "full_preact" else "c b", shared, list(unit.resize.modules()), True)
    expected = apply(after, projected + r, list(unit.after.modules()), True)
    assert_same(unit(x), expected, [x, *unit.parameters()])


@pytest.mark.parametrize("share", ["project", "resize"])
def test_padded_shortcuts_are_raw_unless_asked(share):
    unit = random_unit({"order": "full_preact", "share_activation": share}, 4, 2)
    x = image(4)
    norms = [m for m in unit.modules() if isinstance(m, nn.BatchNorm2d)]
    activated = apply("b r", x, norms[:1], True)
    r = apply("c b r c", activated, list(unit.residual.modules()) if share == "resize" else rest(unit.residual), True)
    source = x if share == "project" else activated
    padded = torch.cat([source[:, :, ::2, ::2], torch.zeros(3, 2, *r.shape[2:], dtype=x.dtype)], 1)
    assert_same(unit(x), padded + r, [x, *unit.parameters()])


def rest(residual: Residual) -> list[nn.Module]:
    """F without its head activation."""
    return [m for name, part in residual.named_children() if name != "before" for m in part.modules()]


@pytest.mark.parametrize(("stride_on", "strides"), [("1x1", [2, 1, 1]), ("3x3", [1, 2, 1])])
def test_the_place_of_a_bottlenecks_stride(stride_on, strides):
    unit = random_unit({"kernels": "bottleneck", "resize": "project", "stride_on": stride_on}, 4, 2)
    assert [m.stride[0] for m in unit.residual.modules() if isinstance(m, nn.Conv2d)] == strides


def test_the_first_unit_leaves_the_activation_to_the_stem():
    unit = random_unit({"order": "full_preact"}, 6, 1, first=True)
    x = image(6)
    assert_same(unit(x), x + apply("c b r c", x, list(unit.residual.modules()), True), [x, *unit.parameters()])
