"""The grid of units that is analysed for the page."""

from resnets import spec_of
from resnets.papers.tables import EXPERIMENTS
from resnets.papers.variants import DEEPEST, DEPTHS, list_groups, list_variants, variant_of
from resnets.unit_spec import KERNELS, ORDERS


def test_every_depth_has_every_shortcut_order_and_form_of_f():
    assert list_groups() == [*((d, k) for d in DEPTHS for k in KERNELS), (DEEPEST, "bottleneck")]
    for group in list_groups():
        found = list_variants(*group)
        for variant in found:
            assert (variant.spec.depth, variant.spec.block) == (variant.layers, variant.kernels)
        kinds = {variant.shortcut.split(":")[0] for variant in found}
        wanted = {"identity", "scale", "exclusive_gate", "shortcut_gate"}
        assert kinds == (wanted if group[0] == DEEPEST else wanted | {"plain", "conv1x1", "dropout"})
        for shortcut in {variant.shortcut for variant in found} - {"plain"}:
            assert {variant.order for variant in found if variant.shortcut == shortcut} == set(ORDERS)


def test_the_variant_of_a_row_is_the_network_that_the_row_trains():
    found = 0
    for row in {row for experiment in EXPERIMENTS.values() for row in experiment.rows}:
        if variant := variant_of(row):
            found += 1
            ours, theirs = variant.spec.to_dict(), spec_of(row.network, **dict(row.changes)).to_dict()
            assert {**ours, "name": ""} == {**theirs, "name": ""}
            assert variant in list_variants(variant.layers, variant.kernels)
    assert found == 28


def test_other_systems_other_data_and_other_depths_are_no_variants():
    rows = {row.name: row for experiment in EXPERIMENTS.values() for row in experiment.rows}
    for name in ("nin-cifar10-nin-paper", "resnet164-cifar100", "resnet32-cifar10", "resnet1202-cifar10"):
        assert variant_of(rows[name]) is None, name
