"""The papers' numbers, and what stands beside ours."""

import pytest

from resnets import list_models, spec_of
from resnets.papers.numbers import REPORTED, beside, reported


def test_every_row_names_a_network_and_stands_once():
    rows = [(row.network, row.data) for row in REPORTED]
    assert len(set(rows)) == len(rows)
    assert {name for name, _ in rows} <= set(list_models())


def test_a_pre_activation_net_without_a_row_stands_beside_its_original_twin():
    assert reported("preresnet20", "cifar10").network == "resnet20"
    assert reported("preresnet110", "cifar10").error == 6.37
    assert reported("resnet18", "cifar10") is None


@pytest.mark.parametrize("changes", [{"order": "bn_after_add"}, {"shortcut": "conv1x1"}])
def test_a_variant_is_not_compared_with_the_network_it_was_made_from(changes):
    assert beside(spec_of("resnet110"), "cifar10") == (
        "the paper's resnet110, after 64,000 iterations: 6.61 % (v2 Table 1)"
    )
    assert beside(spec_of("resnet110", **changes), "cifar10") is None
