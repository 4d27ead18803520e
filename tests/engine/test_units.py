"""Units in a row by one call give the bytes of one unit after the other."""

import copy

import pytest
import torch
from exactness import gradients
from torch import nn
from variants import trained

from resnets.engine import prepare
from resnets.engine.native.build import load
from resnets.engine.native.unit import NativeUnit
from resnets.engine.native.units import NativeUnits, join_units
from resnets.unit_spec import ORDERS, Plain, parse_shortcut

KERNELS = load().kernels
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no kernels here: {load().how}")
VARIANTS = {
    **{order: {"order": order} for order in ORDERS},
    **{f"{order}, bottlenecks": {"order": order, "kernels": (1, 3, 1)} for order in ("original", "full_preact")},
    "other kernels": {"order": "full_preact", "kernels": (5, 1, 3)},
    "one layer": {"order": "original", "kernels": (3,)},
    "plain": {"shortcut": Plain()},
    **{
        f"{gate}, {order}": {"shortcut": parse_shortcut(gate), "order": order}
        for gate in ("exclusive_gate:-1", "shortcut_gate:-1")
        for order in ORDERS
    },
    "gate, one layer": {"shortcut": parse_shortcut("shortcut_gate:-1"), "order": "full_preact", "kernels": (3,)},
    "gate, bottlenecks": {"shortcut": parse_shortcut("exclusive_gate:-1"), "kernels": (1, 3, 1)},
}


def run(runners, net):
    def model(x):
        x, sums = net.stem(x), None
        for part in runners:
            x, sums = part.with_sums(x, sums)
        return net.forward_head(net.last(x))

    return [*gradients(model, net), *net.state_dict().values()]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_bytes_of_one_unit_after_the_other(variant, layout):
    net = trained(widths=(16, 24, 32), blocks=3, **VARIANTS[variant]).to(memory_format=layout)
    twin = copy.deepcopy(net)
    joined = join_units([NativeUnit(unit, KERNELS) for unit in twin.units])
    found = run([NativeUnit(unit, KERNELS) for unit in net.units], net)
    assert "bn_after_add" in variant or any(isinstance(part, NativeUnits) for part in joined)
    assert all(torch.equal(one, all_) for one, all_ in zip(found, run(joined, twin), strict=True))


def test_only_units_of_one_shape_without_anything_else_are_joined():
    def lengths(**options):
        net = trained(widths=(16, 24, 32), blocks=3, **options)
        joined = join_units([NativeUnit(unit, KERNELS) for unit in net.units])
        return [len(part.units) if isinstance(part, NativeUnits) else 0 for part in joined]

    assert lengths(order="full_preact") == [3, 0, 2, 0, 2]
    assert lengths(order="full_preact", shortcut=parse_shortcut("dropout:0.5")) == [0] * 9
    assert lengths(order="full_preact", shortcut=parse_shortcut("scale:0.5:0.5")) == [0] * 9


def test_new_tensors_frozen_layers_and_changed_settings_are_noticed():
    net = trained(widths=(16, 24, 32), blocks=3, order="full_preact")
    model, twin = prepare(net), copy.deepcopy(net)
    gradients(model, net)
    gradients(twin, twin)
    for each in (net, twin):
        each.zero_grad()
        unit = each.units[1]
        unit.residual.conv1.weight = nn.Parameter(2 * unit.residual.conv1.weight.detach())
        unit.residual.before.bn.eps = 0.5
        each.units[2].residual.conv1.weight.requires_grad_(False)
        each.units[5].residual.act1.eval()
    pairs = list(zip(gradients(model, net), gradients(twin, twin), strict=True))
    assert [a is None for a, _ in pairs] == [b is None for _, b in pairs]
    for a, b in pairs:
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_filters_that_change_before_the_backward_pass_are_an_error():
    net = trained(widths=(16, 24, 32), blocks=3, order="full_preact")
    loss = prepare(net)(torch.randn(4, 3, 16, 16)).sum()
    with torch.no_grad():
        net.units[1].residual.conv1.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
