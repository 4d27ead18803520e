"""The papers' numbers, and what stands beside ours."""

import pytest

from resnets import list_models, spec_of
from resnets.papers.numbers import REPORTED, find_paper_error, quote_paper


def test_the_numbers_are_those_of_the_tables():
    assert {name for name, _ in REPORTED} <= set(list_models())
    assert all((row.network, row.data) == key for key, row in REPORTED.items())
    assert len(REPORTED) == 17
    assert (REPORTED["resnet1202", "cifar10"].error, REPORTED["resnet1202", "cifar10"].where) == (7.93, "v1 Table 6")
    assert (REPORTED["resnet164", "cifar100"].error, REPORTED["resnet164", "cifar100"].where) == (25.16, "v2 Table 3")


def test_a_pre_activation_net_without_a_row_stands_beside_its_original_twin():
    assert find_paper_error("preresnet20", "cifar10").network == "resnet20"
    assert find_paper_error("preresnet110", "cifar10").error == 6.37
    assert find_paper_error("resnet18", "cifar10") is None


@pytest.mark.parametrize("changes", [{"order": "bn_after_add"}, {"shortcut": "conv1x1"}])
def test_a_variant_is_not_compared_with_the_network_it_was_made_from(changes):
    assert quote_paper(spec_of("resnet110"), "cifar10") == (
        "the paper's resnet110, after 64,000 iterations: 6.61 % (v2 Table 1)"
    )
    assert quote_paper(spec_of("resnet110", **changes), "cifar10") is None
