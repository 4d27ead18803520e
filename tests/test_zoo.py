"""The table of named networks."""

import dataclasses

import pytest

import resnets
from resnets import UserError, spec_of
from resnets.unit_spec import Plain


def test_all_names():
    cifar = [20, 32, 44, 56, 110, 164, 1001, 1202]
    imagenet = [18, 34, 50, 101, 152, 200]
    names = {f"{family}{depth}" for family in ("resnet", "preresnet") for depth in cifar + imagenet}
    names |= {f"plain{depth}" for depth in (20, 32, 44, 56, 110, 18, 34)}
    names |= {"resnet110_1layer", "preresnet110_1layer", "preresnet12_w32", "preresnet12_w48"}
    assert set(resnets.list_models()) == names
    assert resnets.list_models("plain1*") == ["plain18", "plain110"]
    assert resnets.list_models("nothing*") == []


@pytest.mark.parametrize(
    ("name", "block", "blocks"),
    [
        ("resnet20", "basic", (3, 3, 3)),
        ("preresnet110", "basic", (18, 18, 18)),
        ("preresnet164", "bottleneck", (18, 18, 18)),
        ("resnet1001", "bottleneck", (111, 111, 111)),
        ("resnet1202", "basic", (200, 200, 200)),
        ("resnet110_1layer", "one_layer", (36, 36, 36)),
        ("resnet34", "basic", (3, 4, 6, 3)),
        ("preresnet200", "bottleneck", (3, 24, 36, 3)),
    ],
)
def test_what_a_name_means(name, block, blocks):
    spec = spec_of(name)
    assert (spec.block, spec.blocks) == (block, blocks)
    assert spec.order == ("full_preact" if name.startswith("pre") else "original")


def test_wide_nets_say_their_layers_and_their_first_width():
    for name in resnets.list_models("*_w*"):
        spec = spec_of(name)
        assert name == f"preresnet{spec.depth}_w{spec.widths[0]}"
        assert spec.stem_channels == spec.widths[0]


def test_plain_nets_are_residual_nets_without_shortcuts():
    for name in resnets.list_models("plain*"):
        twin = spec_of(name.replace("plain", "resnet"), shortcut=Plain())
        assert dataclasses.replace(twin, name=name) == spec_of(name)


def test_where_the_stride_stands():
    assert spec_of("preresnet1001").stride_on == "1x1"
    assert spec_of("resnet50").stride_on == "3x3"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet51", "unknown network 'resnet51': did you mean resnet50 or resnet56 or resnet44?"),
        ("preresnet26", r"26 layers is preresnet20 with depth=26\."),
        ("vgg", "unknown network 'vgg'"),
        ("", "unknown network ''"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(UserError, match=message):
        resnets.create(name)


def test_depth_and_blocks():
    assert spec_of("preresnet20", depth=26).blocks == (4, 4, 4)
    assert spec_of("preresnet20", kernels="bottleneck", depth=29, resize="project").blocks == (3, 3, 3)
    assert spec_of("resnet20", blocks=5).depth == 32
    with pytest.raises(UserError, match="unequal length"):
        spec_of("resnet50", depth=26)
