"""The papers' numbers as the papers print them, and rows that tables share."""

import dataclasses

import pytest

from resnets import list_models, spec_of
from resnets.experiments.comparison import correlate_ranks, rank_values
from resnets.papers.rows import Row, Value
from resnets.papers.tables import EXPERIMENTS


def printed(name):
    return [(cell.row.name if cell.row else cell.label, str(cell.value)) for cell in EXPERIMENTS[name].cells]


def test_table_1():
    assert printed("table1") == [
        ("resnet110-cifar10", "6.61"),
        ("plain110-cifar10", "fails"),
        ("resnet110-scale_0.5_1-cifar10", "fails"),
        ("resnet110-scale_0.5_0.5-cifar10", "12.35"),
        ("resnet110-exclusive_gate_0-cifar10", "fails"),
        ("resnet110-exclusive_gate_-6-cifar10", "8.70"),
        ("resnet110-exclusive_gate_-7-cifar10", "9.81"),
        ("resnet110-shortcut_gate_0-cifar10", "12.86"),
        ("resnet110-shortcut_gate_-6-cifar10", "6.91"),
        ("resnet110-conv1x1-cifar10", "12.22"),
        ("resnet110-dropout_0.5-cifar10", "fails"),
    ]


def test_table_2():
    assert printed("table2") == [
        ("resnet110-cifar10", "6.61"),
        ("resnet110-bn_after_add-cifar10", "8.17"),
        ("resnet110-relu_before_add-cifar10", "7.84"),
        ("resnet110-relu_preact-cifar10", "6.71"),
        ("preresnet110-cifar10", "6.37"),
        ("resnet164-cifar10", "5.93"),
        ("resnet164-bn_after_add-cifar10", "6.50"),
        ("resnet164-relu_before_add-cifar10", "6.14"),
        ("resnet164-relu_preact-cifar10", "5.91"),
        ("preresnet164-cifar10", "5.46"),
    ]


def test_table_3():
    assert printed("table3") == [
        ("resnet110_1layer-cifar10", "9.90"),
        ("preresnet110_1layer-cifar10", "8.91"),
        ("resnet110-cifar10", "6.61"),
        ("preresnet110-cifar10", "6.37"),
        ("resnet164-cifar10", "5.93"),
        ("preresnet164-cifar10", "5.46"),
        ("resnet1001-cifar10", "7.61"),
        ("preresnet1001-cifar10", "4.92"),
        ("resnet164-cifar100", "25.16"),
        ("preresnet164-cifar100", "24.33"),
        ("resnet1001-cifar100", "27.82"),
        ("preresnet1001-cifar100", "22.71"),
    ]


def test_table_4_has_ours_and_the_others():
    table = printed("table4")
    assert table[:2] == [("nin-cifar10-nin-paper", "8.81"), ("nin-cifar100-nin-cifar100", "35.68")]
    assert len(table) == 2 * 7 + 9
    assert ("fitresnet4-cifar10-lsuv-paper", "5.84") in table  # two systems, which v2 prints on one line
    assert ("fitnet4_lsuv-cifar100-lsuv-rmsprop", "27.66") in table
    assert all(cell.row for cell in EXPERIMENTS["table4"].cells)
    assert ("preresnet1001-cifar10-cifar-paper-b64", "4.62 (4.69 +- 0.20)") in table
    assert ("preresnet1001-cifar100", "22.71 (22.68 +- 0.22)") in table
    assert ("resnet1202-cifar10", "7.93") in table


def test_imagenet():
    assert [value for _, value in printed("table5")] == [
        "23.0/6.7", "21.3/5.5", "21.1/5.5", "21.8/6.0", "20.7/5.3", "20.1/4.8", "21.2/5.6",
    ]  # fmt: skip
    assert printed("table5")[-1][0] == "inception_v3-imagenet-inception-paper"
    assert printed("inception-resnet") == [("inception_resnet_v2-imagenet-inception-paper", "19.9/4.9")]
    assert printed("depth")[:3] == [
        ("vgg16-imagenet-vgg-paper", "28.07/9.33"),
        ("googlenet-imagenet-googlenet-paper", "-/9.15"),
        ("prelunet_c-imagenet-prelunet-paper", "24.27/7.38"),
    ]
    assert [value for _, value in printed("single-model")[:5]] == [
        "-/8.43", "-/7.89", "24.4/7.1", "21.59/5.71", "21.99/5.81",
    ]  # fmt: skip
    assert [value for _, value in printed("ensembles")] == [
        "-/7.32", "-/6.66", "-/6.80", "-/4.94", "-/4.82", "-/3.57",
    ]  # fmt: skip
    assert [value for _, value in printed("options")] == ["28.54/10.02", "25.03/7.76", "24.52/7.46", "24.19/7.40"]
    assert printed("depth")[-3:] == [
        ("resnet50-1x1-imagenet-imagenet-paper", "22.85/6.71"),
        ("resnet101-1x1-imagenet-imagenet-paper", "21.75/6.05"),
        ("resnet152-1x1-imagenet-imagenet-paper", "21.43/5.71"),
    ]
    assert [value for _, value in printed("single-model")[5:]] == [
        "21.84/5.71", "21.53/5.60", "20.74/5.25", "19.87/4.60", "19.38/4.49",
    ]  # fmt: skip
    assert [value for _, value in printed("plain-imagenet")] == ["27.94", "27.88", "28.54/10.02", "25.03/7.76"]


def test_other_systems_of_v1_on_cifar():
    assert printed("other-cifar")[:6] == [
        ("maxout-cifar10-maxout-paper", "9.38"),
        ("nin-cifar10-nin-paper", "8.81"),
        ("dsn-cifar10-dsn-paper", "8.22"),
        ("fitnet4-cifar10-fitnet-paper", "8.39"),
        ("highway19-cifar10-highway-paper", "7.54 (7.72 +- 0.16)"),
        ("highway32-cifar10-highway-paper", "8.80"),
    ]
    assert printed("other-cifar")[-1] == ("resnet1202-cifar10", "7.93")


def test_figures_name_their_curves():
    names = {figure: [row.name for row in EXPERIMENTS[figure].rows] for figure in ("figure1", "figure6")}
    assert names == {
        "figure1": ["resnet1001-cifar10", "preresnet1001-cifar10"],
        "figure6": [
            "resnet110-cifar10", "resnet110-bn_after_add-cifar10", "resnet164-cifar10", "preresnet164-cifar10",
        ],
    }  # fmt: skip
    assert set(EXPERIMENTS["figure3"].rows) < set(EXPERIMENTS["table1"].rows)


def test_the_bias_is_searched_on_held_out_images_in_eleven_steps():
    rows = EXPERIMENTS["gate-bias"].rows
    assert [dict(row.changes)["shortcut"] for row in rows] == [f"exclusive_gate:{-i}" for i in range(11)]
    assert {(row.validation, row.split) for row in rows} == {(5000, "validation")}
    assert not set(rows) & set(EXPERIMENTS["table1"].rows)


def test_equal_rows_are_one_row_and_names_tell_rows_apart():
    rows = [row for experiment in EXPERIMENTS.values() for row in experiment.rows]
    assert len(rows) > len(set(rows))
    assert len({row.name for row in rows}) == len(set(rows))
    shared = Row("resnet110")
    assert sum(shared in experiment.rows for experiment in EXPERIMENTS.values()) == 9


def test_one_row_has_one_value_in_all_tables_that_test_it_alike():
    """v1 gives its best run of ResNet-110 where v2 gives the median, and the best of Highway where v2 has the mean."""
    found = {}
    for experiment in EXPERIMENTS.values():
        for cell in experiment.cells:
            if cell.row and (cell.value.error or cell.value.fails):
                found.setdefault((cell.row.name, cell.test), set()).add(cell.value.error)
    assert {key for key, errors in found.items() if len(errors) > 1} == {
        ("resnet110-cifar10", ""),
        ("highway19-cifar10-highway-paper", ""),
    }


def test_every_row_names_a_network_that_can_be_made():
    for row in {row for experiment in EXPERIMENTS.values() for row in experiment.rows}:
        assert row.network in list_models("*")
        spec = spec_of(row.network, **dict(row.changes))
        assert spec != spec_of(row.network) or not row.changes, f"{row.name} is {row.network} by another name"


def test_a_value_without_a_number_is_empty():
    assert [str(Value()), str(Value(None, 9.15))] == ["", "-/9.15"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Value().error = 1.0


def test_ranks_share_places():
    assert rank_values([30, 10, 30, 20]) == [3.5, 1, 3.5, 2]


def test_rank_correlation():
    """Against the textbook's formula 1 - 6 sum d^2 / (n (n^2 - 1)) where nothing is equal."""
    one, other = [1, 5, 2, 8, 4], [10, 30, 40, 50, 20]
    squares = sum((a - b) ** 2 for a, b in zip(rank_values(one), rank_values(other), strict=True))
    assert correlate_ranks(one, other) == pytest.approx(1 - 6 * squares / (5 * 24))
    assert correlate_ranks([1, 2, 3], [5, 6, float("inf")]) == pytest.approx(1)
    assert correlate_ranks([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert correlate_ranks([1, 1, 2], [1, 2, 2]) == pytest.approx(0.5)
    assert correlate_ranks([1, 2], [1, 2]) is None
    assert correlate_ranks([1, 1, 1], [1, 2, 3]) is None
