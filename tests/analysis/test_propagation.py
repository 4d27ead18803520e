"""How signals travel, against float64 autograd on all maps at once and against the equations of v2."""

import itertools
import math
import statistics

import pytest
import torch
from torch.nn import functional

import resnets
from resnets.analysis.propagation import propagation, spans, summarize_signal
from resnets.analysis.unit_terms import run, take_apart
from resnets.errors import UserError
from resnets.nn import ResNet
from resnets.nn.shortcuts import ExclusiveGate, Scale
from resnets.unit_spec import KERNELS, ORDERS, SHORTCUTS

IMAGES = torch.randn(6, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(6)


def tiny(**changes) -> ResNet:
    """Seven units on maps of 12 and 6 pixels, with BN and classifier away from their start."""
    options = {"widths": (4, 6), "blocks": (4, 3), "seed": 0, "dtype": torch.float64, **changes}
    net = resnets.create("resnet20", **options)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("bn.weight", "bn.bias", "running_mean", "running_var")):
                tensor.add_(0.2 * torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype))
    return net


def oracle(net: ResNet) -> dict[str, list[float]]:
    """All maps and all residuals kept, and one backward pass of autograd through all of them."""
    residuals = []
    hooks = [unit.residual.register_forward_hook(lambda m, i, out: residuals.append(out)) for unit in net.units]
    maps = net.forward_units(IMAGES)
    for hook in hooks:
        hook.remove()
    for x in maps:
        x.retain_grad()
    loss = functional.cross_entropy(net.forward_head(net.last(maps[-1])), LABELS)
    loss.backward()
    added = []
    for x, r, unit in zip(maps, residuals, net.units, strict=False):
        scale = 1
        if isinstance(unit.shortcut, Scale):
            scale = unit.shortcut.b
        if isinstance(unit.shortcut, ExclusiveGate):
            scale = unit.shortcut.gate(unit.resize(unit.shared(x)))
        added.append(scale * r)
    found = {"rms": [], "variance": [], "gradient": [], "cosine": [], "missed": [], "share": []}
    for i, x in enumerate(maps):
        end = max(j for j, other in enumerate(maps) if other.shape == x.shape)
        found["rms"].append(x.square().mean().sqrt().item())
        found["variance"].append((x - x.mean()).square().mean().item())
        found["gradient"].append(x.grad.norm().item())
        found["cosine"].append(functional.cosine_similarity(x.grad.flatten(), maps[end].grad.flatten(), 0).item())
        found["missed"].append(((maps[end] - x - sum(added[i:end])).norm() / maps[end].norm()).item())
        if i:
            found["share"].append((added[i - 1].norm() / x.norm()).item())
    return {"loss": [loss.item()], **found}


VARIANTS = [
    (order, shortcut, kernels)
    for order, shortcut, kernels in itertools.product(ORDERS, SHORTCUTS, KERNELS)
    if shortcut != "plain" or order == "original"
]


@pytest.mark.parametrize(("order", "shortcut", "kernels"), VARIANTS)
def test_every_number_is_that_of_autograd_on_all_maps(order, shortcut, kernels):
    """In batch mode, and for dropout, whose masks are random there, with the expectation of testing."""
    net = tiny(order=order, shortcut=shortcut, kernels=kernels)
    training = shortcut != "dropout"
    found = propagation(net, IMAGES, LABELS, statistics="batch" if training else "running")
    wanted = oracle(net.train(training))
    assert found.loss == pytest.approx(wanted.pop("loss")[0], rel=1e-12)
    for name, values in wanted.items():
        assert getattr(found, name) == pytest.approx(values, rel=1e-9, abs=1e-13), name


@pytest.mark.parametrize("resize", ["pad", "pad_both", "pad_pool", "project"])
def test_units_that_resize_are_outside_the_equations(resize):
    net = tiny(order="full_preact", resize=resize)
    found = propagation(net, IMAGES, LABELS)
    assert found.spans == ((0, 4), (5, 7))
    assert [factor is None for factor in found.factor] == [i == 4 for i in range(7)]
    assert found.product == (1,) * 8
    wanted = oracle(net.train())
    assert found.gradient == pytest.approx(wanted["gradient"], rel=1e-9)
    assert found.cosine == pytest.approx(wanted["cosine"], rel=1e-9)


# --- equation (4) -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["relu_before_add", "relu_preact", "full_preact"])
def test_equation_4_is_exact_where_h_and_f_are_identities(order):
    found = propagation(tiny(order=order), IMAGES, LABELS)
    assert max(found.missed) < 1e-14
    assert found.truncated == (None,) * 7


@pytest.mark.parametrize("changes", [{}, {"order": "bn_after_add"}, {"order": "full_preact", "shortcut": "scale:0.5"}])
def test_equation_4_fails_where_one_of_them_is_not(changes):
    found = propagation(tiny(**changes), IMAGES, LABELS)
    assert min(m for i, m in enumerate(found.missed) if i not in (4, 7)) > 0.01
    assert (found.missed[4], found.missed[7]) == (0, 0)


# --- equations (7) and (8) --------------------------------------------------------------------


def test_the_factor_of_constant_scaling_is_the_product_of_lambda():
    found = propagation(tiny(shortcut=resnets.Scale(0.7, 1)), IMAGES, LABELS)
    wanted = [0.7**n for n in (4, 3, 2, 1, 0, 2, 1, 0)]
    assert found.product == pytest.approx(wanted, rel=1e-12)
    assert found.predicted_product == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_the_factor_of_identity_is_one_and_of_a_plain_net_zero(order):
    found = propagation(tiny(order=order), IMAGES, LABELS)
    assert set(found.factor) == set(found.predicted) == {1.0, None}
    if order == "original":
        found = propagation(tiny(shortcut="plain"), IMAGES, LABELS)
        assert set(found.factor) == set(found.predicted) == {0.0, None}
        assert found.product == found.predicted_product == (0, 0, 0, 0, 1, 0, 0, 1)


@pytest.mark.parametrize("kind", ["exclusive_gate", "shortcut_gate"])
def test_the_factor_of_gates_is_one_minus_g(kind):
    net = tiny(shortcut=f"{kind}:-2")
    found = propagation(net, IMAGES, LABELS)
    assert found.predicted[0] == pytest.approx(1 / (1 + math.exp(-2)))
    with torch.no_grad():
        x = net.train().forward_units(IMAGES)[1]
        g = net.units[1].shortcut.gate(x)
        assert found.factor[1] == pytest.approx(((1 - g) * x**2).sum().item() / x.square().sum().item())
        for unit in net.units:
            unit.shortcut.gate.weight.zero_()
    found = propagation(net, IMAGES, LABELS)
    assert found.product == pytest.approx(found.predicted_product), "without W_g the prediction is exact"


@pytest.mark.parametrize(("rescale", "wanted"), [(False, 0.7), (True, 1.0)])
def test_the_factor_of_dropout_is_the_keep_rate_in_expectation(rescale, wanted):
    net = tiny(shortcut=resnets.Dropout(0.3, rescale), blocks=(2, 1))
    runs = [propagation(net, IMAGES, LABELS, seed=3 * seed) for seed in range(20)]
    assert set(runs[0].predicted) == {wanted, None}
    for i, factors in enumerate(zip(*(found.factor for found in runs), strict=True)):
        if None not in factors:
            near = 4 * statistics.stdev(factors) / math.sqrt(len(factors))
            assert 0 < near < 0.1
            assert statistics.fmean(factors) == pytest.approx(wanted, abs=near), i
    assert runs[0] == propagation(net, IMAGES, LABELS, seed=0)
    assert runs[0].rms != runs[1].rms
    tested = propagation(net, IMAGES, LABELS, statistics="running")
    assert tested.product == pytest.approx(tested.predicted_product, rel=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_the_factor_of_a_1x1_is_its_gain(order):
    net = tiny(order=order, shortcut="conv1x1", widths=(24, 32))
    found = propagation(net, IMAGES, LABELS)
    with torch.no_grad():
        x = net.train().forward_units(IMAGES)[1]
        unit = net.units[1]
        assert found.factor[1] == pytest.approx((unit.resize(unit.shared(x)).norm() / x.norm()).item())
    near = 0.25 if order == "full_preact" else 1e-2  # a finite random matrix; BN's eps
    for i, (factor, predicted) in enumerate(zip(found.factor, found.predicted, strict=True)):
        if factor is not None:
            assert factor == pytest.approx(predicted, rel=near), i


# --- truncation -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["original", "bn_after_add"])
def test_truncation_is_the_share_that_the_last_relu_cuts(order):
    net = tiny(order=order)
    before = []
    for unit in net.units:
        unit.after.relu.register_forward_pre_hook(lambda m, i: before.append(i[0]))
    with torch.no_grad():
        net.train().forward_units(IMAGES)
    wanted = [(y < 0).double().mean().item() for y in before[:7]]
    assert propagation(net, IMAGES, LABELS).truncated == pytest.approx(wanted)
    assert min(wanted) > 0


# --- nothing is left behind -------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["batch", "running", "cheap"])
@pytest.mark.parametrize("shortcut", ["identity", "dropout:0.5"])
def test_nothing_changes(measure, shortcut):
    net = tiny(shortcut=shortcut, dtype=torch.float32).train()
    net.units[2].eval()
    net.stem.conv.weight.requires_grad_(False)
    net.classifier.weight.grad = torch.ones_like(net.classifier.weight)
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    images, drawn = IMAGES.float(), torch.get_rng_state()
    seen = images.clone()
    summarize_signal(net, images) if measure == "cheap" else propagation(net, images, LABELS, statistics=measure)
    for name, tensor in net.state_dict().items():
        assert tensor.numpy().tobytes() == state[name].numpy().tobytes(), name
    assert [module.training for module in net.modules()] == modes
    assert all(m.track_running_stats for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d))
    assert [p.grad is not None for p in net.parameters()] == [p is net.classifier.weight for p in net.parameters()]
    assert torch.equal(net.classifier.weight.grad, torch.ones_like(net.classifier.weight))
    assert not net.stem.conv.weight.requires_grad
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.equal(images, seen)


def test_a_net_is_restored_after_a_failure():
    net = tiny().eval()
    with pytest.raises(UserError, match="reads batches of shape"):
        propagation(net, IMAGES[:, :2], LABELS)
    assert not any(module.training for module in net.modules())
    assert all(m.track_running_stats for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shortcut", [s for s in SHORTCUTS if s != "plain"])
def test_the_parts_make_the_unit(order, shortcut):
    net = tiny(order=order, shortcut=shortcut)
    x = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    for i in (1, 4):  # one that keeps the size, one that does not
        unit = net.units[i]
        parts = take_apart(unit, x, seed=3)
        assert torch.equal(parts.out, run(unit, x, seed=3))
        torch.testing.assert_close(unit.after(parts.h + parts.added), parts.out, rtol=1e-12, atol=1e-12)


# --- batches, words, mistakes -----------------------------------------------------------------


def test_batches_are_averaged_and_the_rest_is_left_out():
    net = tiny()
    found = propagation(net, IMAGES, LABELS, batch=2)
    one = [propagation(net, IMAGES[i : i + 2], LABELS[i : i + 2]) for i in (0, 2, 4)]
    assert (found.images, found.batch) == (6, 2)
    for name in ("rms", "gradient", "cosine", "share", "truncated"):
        means = [sum(values) / 3 for values in zip(*(getattr(p, name) for p in one), strict=True)]
        assert getattr(found, name) == pytest.approx(means), name
    assert propagation(net, IMAGES, LABELS, batch=4).images == 4


def test_the_cheap_numbers_are_those_of_the_whole_analysis():
    net = tiny(shortcut="scale:0.7:0.5")
    full, found = propagation(net, IMAGES, LABELS), summarize_signal(net, IMAGES)
    assert found["rms"] == pytest.approx([full.rms[4], full.rms[7]])
    assert found["growth"] == pytest.approx([full.rms[4] / full.rms[0], full.rms[7] / full.rms[5]])
    assert found["share"] == pytest.approx([sum(full.share[:4]) / 4, sum(full.share[5:]) / 2])
    assert found["truncated"] == pytest.approx([sum(full.truncated[:4]) / 4, sum(full.truncated[5:]) / 2])
    assert found["product"] == pytest.approx([0.7**4, 0.7**2])


def test_what_overflows_is_none():
    net = tiny(shortcut=resnets.Scale(1e30, 1), dtype=torch.float32)
    found = propagation(net, IMAGES.float(), LABELS)
    assert found.rms[0] is not None
    assert found.rms[3] is None
    assert found.growth[2] is None
    assert found.to_dict()["maps"]["rms"][3] is None


def test_plain_data():
    net = tiny()
    data = propagation(net, IMAGES, LABELS).to_dict()
    assert (data["name"], data["statistics"], data["images"], data["spans"]) == (
        "resnet20",
        "batch",
        6,
        [[0, 4], [5, 7]],
    )
    assert data["network"] == net.spec.to_dict()
    assert {len(values) for values in data["maps"].values()} == {8}
    assert {len(values) for values in data["units"].values()} == {7}
    assert data["units"]["growth"][0] == pytest.approx(data["maps"]["rms"][1] / data["maps"]["rms"][0])


def test_spans():
    assert spans("a") == ((0, 0),)
    assert spans("abbbcc") == ((0, 0), (1, 3), (4, 5))


@pytest.mark.parametrize(
    ("options", "labels", "sentence"),
    [
        ({"statistics": "moving"}, LABELS, "statistics must be batch or running, not 'moving'"),
        ({}, LABELS[:5], "6 images came with labels of"),
        ({"batch": 7}, LABELS, "batch must be between 1 and the number of images, 6, not 7"),
        ({"batch": 0}, LABELS, "batch must be between 1"),
        ({}, LABELS + 5, "labels must lie between 0 and 9"),
    ],
)
def test_mistakes_get_one_sentence(options, labels, sentence):
    with pytest.raises(UserError, match=sentence):
        propagation(tiny(), IMAGES, labels, **options)
