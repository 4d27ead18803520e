"""Whole networks: equation (4), every combination, shapes, initialisation."""

import itertools
import math

import pytest
import torch
from torch import nn

import resnets
from resnets.spec import RESIZES
from resnets.unit_spec import KERNELS, ORDERS, SHORTCUTS


@pytest.mark.parametrize("training", [True, False])
def test_equation_4_holds_to_rounding_on_preresnet110(training):
    """x_L - x_l is the sum of F(x_i) for all l < L within one map size."""
    net = resnets.create("preresnet110", seed=0, dtype=torch.float64).train(training)
    residuals: list[torch.Tensor] = []
    for unit in net.units:
        unit.residual.register_forward_hook(lambda m, i, out: residuals.append(out))
    with torch.no_grad():
        x = net.forward_units(torch.randn(4, 3, 32, 32, dtype=torch.float64))
    start = 0
    for stage, units in enumerate(net.stages):
        end = start + len(units)
        first = start + (stage > 0)  # the unit that halves the map has no identity shortcut
        for low in range(first, end):
            total = sum(residuals[low:end])
            error = (x[end] - x[low] - total).abs().max() / x[end].abs().max()
            assert error < 1e-14
        start = end
    assert start == len(residuals) == 54


def test_equation_4_fails_where_f_is_relu():
    """The same sum misses for the original unit: the test above can tell."""
    net = resnets.create("resnet20", seed=0, dtype=torch.float64)
    residuals: list[torch.Tensor] = []
    for unit in net.units:
        unit.residual.register_forward_hook(lambda m, i, out: residuals.append(out))
    x = net.forward_units(torch.randn(4, 3, 32, 32, dtype=torch.float64))
    assert (x[3] - x[0] - sum(residuals[:3])).abs().max() > 0.1


@pytest.mark.parametrize(("order", "shortcut"), list(itertools.product(ORDERS, SHORTCUTS)))
def test_every_combination_runs_or_is_refused(order, shortcut):
    x = torch.randn(2, 3, 32, 32)
    ends = [("cifar", True, "1x1"), ("imagenet", True, "3x3"), ("imagenet", False, "3x3")]
    for kernels, resize, (stem, activated, stride_on) in itertools.product(KERNELS, RESIZES, ends):
        options = {
            "order": order, "shortcut": shortcut, "kernels": kernels, "resize": resize, "stem": stem,
            "stem_activation": activated, "stride_on": stride_on, "widths": (4, 6), "blocks": 2,
        }  # fmt: skip
        refused = (shortcut == "plain" and order != "original") or (not activated and not ORDERS[order].before)
        if refused:
            with pytest.raises(resnets.UserError):
                resnets.create("resnet20", **options)
            continue
        net = resnets.create("resnet20", **options)
        out = net(x)
        out.logsumexp(1).sum().backward()
        assert out.shape == (2, 10)
        gradients = [p.grad for p in net.parameters()]
        assert all(g is not None and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", resnets.list_models())
def test_every_named_network_is_made_of_what_its_name_says(name):
    net = resnets.create(name, device="meta")
    convs = [m for unit in net.units for m in unit.residual.modules() if isinstance(m, nn.Conv2d)]
    depth = int("".join(c for c in name.partition("_")[0] if c.isdigit()))
    assert len(convs) + 2 == depth == net.spec.depth
    assert len(net.units) == sum(map(len, net.stages)) == sum(net.spec.blocks)


@pytest.mark.parametrize(
    ("name", "size"), [("preresnet20", 32), ("resnet164", 32), ("resnet18", 64), ("preresnet50", 64)]
)
def test_forward_is_made_of_its_parts(name, size):
    net = resnets.create(name, seed=0).eval()
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        maps = net.forward_units(x)
        features = net.forward_features(x)
        assert len(maps) == len(net.units) + 1
        assert torch.equal(net.last(maps[-1]), features)
        assert torch.equal(net(x), net.classifier(features.mean((2, 3))))
    sizes = {m.shape[-1] for m in maps}
    assert len(sizes) == len(net.stages)


def test_preactivation_nets_end_in_an_activation_and_others_do_not():
    ends = {
        order: list(dict(resnets.create("resnet20", order=order, device="meta").last.named_children()))
        for order in ORDERS
    }
    assert ends == {
        "original": [],
        "bn_after_add": [],
        "relu_before_add": [],
        "relu_preact": ["relu"],
        "full_preact": ["bn", "relu"],
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("depth", [20, 110])
def test_all_orders_have_the_same_parts(order, depth):
    parts = {}
    for o in ("original", order):
        net = resnets.create(f"resnet{depth}", order=o, device="meta")
        parts[o] = sum(p.numel() for p in net.parameters())
    # relu_preact and original normalise alike; an activation only moves
    assert parts[order] == parts["original"]


@pytest.mark.parametrize(
    ("name", "smallest"), [("preresnet20", 3), ("resnet56", 3), ("resnet18", 17), ("preresnet50", 17)]
)
def test_the_smallest_input_and_any_larger_one(name, smallest):
    net = resnets.create(name).eval()
    assert net.spec.min_size == smallest
    with torch.no_grad():
        for height, width in [(smallest, smallest), (smallest, smallest + 14), (37, 32)]:
            assert net(torch.zeros(1, 3, height, width)).shape == (1, net.spec.num_classes)
        with pytest.raises(resnets.UserError, match=f"at least {smallest}x{smallest} pixels, not {smallest - 1}x40"):
            net(torch.zeros(1, 3, smallest - 1, 40))


@pytest.mark.parametrize("shape", [(1, 1, 32, 32), (3, 32, 32), (1, 4, 32, 32)])
def test_a_wrong_shape_is_told(shape):
    with pytest.raises(resnets.UserError, match=r"preresnet20 reads batches of shape \(N, 3, height, width\), not"):
        resnets.create("preresnet20")(torch.zeros(shape))


def test_stems_change_places():
    small = resnets.create("resnet18", stem="cifar", num_classes=10)
    assert small.forward_units(torch.zeros(2, 3, 32, 32))[0].shape == (2, 64, 32, 32)
    large = resnets.create("resnet20", stem="imagenet")
    assert large.forward_units(torch.zeros(2, 3, 64, 64))[0].shape == (2, 16, 16, 16)


def test_options_users_expect():
    net = resnets.create("resnet20", num_classes=7, in_channels=1, widths=(8, 16, 32, 48), blocks=(1, 2, 1, 1))
    assert [len(s) for s in net.stages] == [1, 2, 1, 1]
    assert net(torch.zeros(2, 1, 32, 32)).shape == (2, 7)
    assert net.forward_features(torch.zeros(2, 1, 32, 32)).shape == (2, 48, 4, 4)


# --- initialisation ---------------------------------------------------------------------------


def test_initialisation_is_the_one_of_fidelity():
    net = resnets.create("resnet50", shortcut=resnets.ShortcutGate(-3), seed=3)
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            k, out = module.kernel_size[0], module.out_channels
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / (k * k * out)), rel=0.05), name
            assert abs(module.weight.mean().item()) < 4 * math.sqrt(2 / (k * k * out) / module.weight.numel())
            if module.bias is not None:
                assert torch.all(module.bias == -3)
        if isinstance(module, nn.BatchNorm2d):
            assert torch.all(module.weight == 1)
            assert not module.bias.any()
            assert (module.eps, module.momentum) == (1e-5, 0.1)
            assert torch.all(module.running_var == 1)
            assert not module.running_mean.any()
    bound = 1 / math.sqrt(2048)
    weight = net.classifier.weight
    assert weight.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert not net.classifier.bias.any()


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_one_seed_is_one_net():
    state = torch.get_rng_state()
    net = resnets.create("preresnet20", seed=5)
    assert torch.equal(torch.get_rng_state(), state), "a seed leaves the global generator alone"
    assert equal(net, resnets.create("preresnet20", seed=5))
    assert equal(net, resnets.create("preresnet20", generator=torch.Generator().manual_seed(5)))
    assert not equal(net, resnets.create("preresnet20", seed=6))
    assert equal(net, resnets.create("preresnet20", seed=5, dtype=torch.float64).float())
    torch.manual_seed(5)
    assert equal(net, resnets.create("preresnet20")), "without a seed the global generator decides"


def test_seed_and_generator_together_are_refused():
    with pytest.raises(resnets.UserError, match="give seed or generator, not both"):
        resnets.create("preresnet20", seed=1, generator=torch.Generator())
