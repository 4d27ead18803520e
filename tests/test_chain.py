"""The words of chains: how they are read, written and refused, and what they do to the shape of a map."""

import dataclasses
import random

import pytest
import torch

import resnets
from resnets import UserError
from resnets.chain import WORDS, Chain, parse_network, parse_row, write_words
from resnets.nn import ChainNet, build
from resnets.nn.chain import FACTORIES
from resnets.other_systems import OTHERS, SYSTEMS

NET = Chain(
    "small", ("a: conv:8:3:s2 bn relu", "b: mix(conv:4:1 | pool:max:3:p1 conv:4:1) sum:0.5(conv:8:3)", "linear:K")
)

COUNTS = {  # of parameters, with 10 and with 100 classes, or with 1000
    "nin": (966_986, 984_356),
    "dsn": (3_547_496, 26_789_456),
    "maxout": (16_247_830,),
    "fitnet4": (2_742_102, 2_787_192),
    "highway19": (2_256_838, 2_265_928),
    "highway32": (1_251_798,),
    "allcnn": (1_369_738, 1_387_108),
    "elu18": (39_226_634, 39_330_404),
    "vgg16": (138_357_544,),
    "vgg19": (143_667_240,),
    "prelunet_a": (178_032_072,),
    "prelunet_c": (330_623_944,),
    "googlenet": (13_378_280,),
    "googlenet_bn": (13_004_888,),
    "bninception": (11_194_984,),
    "inception_v3": (27_161_264,),
    "inception_resnet_v2": (55_843_464,),
}
WITHOUT_HEADS = {"dsn": 966_986, "googlenet": 6_998_552, "googlenet_bn": 6_624_904, "inception_v3": 23_834_568}


def count(name, **changes):
    return sum(p.numel() for p in build(resnets.spec_of(name, **changes), device="meta").parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_those_that_are_known(name):
    assert count(name) == COUNTS[name][0]
    if len(COUNTS[name]) > 1:
        assert count(name, num_classes=100) == COUNTS[name][1]
    assert resnets.complexity(resnets.spec_of(name)).parameters == COUNTS[name][0]


@pytest.mark.parametrize("name", WITHOUT_HEADS)
def test_parameters_without_auxiliary_heads(name):
    assert count(name, aux=False) == WITHOUT_HEADS[name]


def test_layers_are_as_many_as_the_names_say():
    for name, layers in (("fitnet4", 19), ("highway19", 19), ("highway32", 32), ("vgg16", 16), ("vgg19", 19)):
        assert resnets.spec_of(name).depth == layers
    assert resnets.spec_of("elu18").depth == 18 + 1  # and the classifier
    assert resnets.spec_of("googlenet").depth == 22


def test_costs_are_the_published_ones():
    """v1 has 15.3 and 19.6 G for VGG, without fully connected layers; PReLU-net's costs are from its paper."""
    for name, published in (
        ("vgg19", 19.6e9),
        ("prelunet_a", 1.90e10),
        ("prelunet_b", 2.32e10),
        ("prelunet_c", 5.30e10),
    ):
        assert resnets.complexity(resnets.spec_of(name)).multiply_adds == pytest.approx(published, rel=0.012)


@pytest.mark.parametrize("name", OTHERS)
def test_every_system_is_a_row_that_is_complete(name):
    system = SYSTEMS[name]
    assert system.source
    assert parse_network(system.chain.to_dict()) == system.chain
    for row in system.chain.rows:
        row_name, words = parse_row(row)
        assert f"{row_name}: {write_words(words)}" == row  # written as it would be written


def test_every_word_has_a_factory_and_is_explained():
    assert set(FACTORIES) == set(WORDS)
    assert all(kind.form and kind.text for kind in WORDS.values())


def test_shapes_without_torch_are_those_of_the_layers():
    draw = random.Random(0)
    for name in (
        "maxout",
        "fitresnet4",
        "elu18",
        "allcnn",
        "nin_bn",
        "highway19",
        "inception_v3",
        "googlenet",
        "prelunet_a",
    ):
        spec = resnets.spec_of(name)
        size = spec.input_size + draw.randrange(0, 40)
        with torch.device("meta"), torch.no_grad():
            net = ChainNet(dataclasses.replace(spec, aux=False)).eval()
            x = torch.empty(2, 3, size, size)
            for (row, found), wanted in zip(net.rows.named_children(), spec.shapes(size)[:-1], strict=False):
                x = found(x)
                if not row.startswith(("fc", "hidden4", "scores")):  # on larger maps these leave more than one place
                    assert x.shape[1:] == wanted, (name, size, row)


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match=r"vgg16 needs images of at least 224x224 pixels, not 223x224"):
        resnets.spec_of("vgg16").check_images((1, 3, 223, 224))
    resnets.spec_of("vgg16").check_images((1, 3, 320, 256))
    with pytest.raises(UserError, match="reads batches of shape"):
        resnets.spec_of("vgg16").check_images((1, 1, 224, 224))
    with pytest.raises(UserError, match="branches would leave maps of different sizes; 224x224 fit"):
        resnets.spec_of("bninception").check_images((1, 3, 240, 224))


def test_a_chain_survives_json_and_a_dict_without_kind_is_a_spec():
    assert parse_network(NET.to_dict()) == NET
    assert parse_network(resnets.spec_of("resnet20").to_dict()) == resnets.spec_of("resnet20")
    assert NET.to_dict()["kind"] == "chain"


def test_thinner_nets_keep_their_classes():
    thin = resnets.spec_of("inception_resnet_v2").thin(4)
    assert thin.num_classes == 1000
    assert build(thin, device="meta").classifier.in_features == 1536 // 4
    assert resnets.spec_of("nin").thin(1) == resnets.spec_of("nin")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("convv:3:3", "unknown word 'convv': did you mean conv?"),
        ("conv:3", "'conv:3' is no conv, which is written as conv:FILTERS:KERNEL"),
        ("conv:0:3", "out must be a whole number above 0, or K for the classes, not '0'"),
        ("conv:8:3:z2", "is no conv"),
        ("conv:8:3:s2:s2", "is no conv"),
        ("conv:8:-3", "kernel must be a size such as 3 or 1x7"),
        ("pool:min:3", "pool takes max or avg, not 'min'"),
        ("pool:max:x", "pool takes a window such as 3"),
        ("pool:max:to0", "pool takes a window such as 3"),
        ("pool:max:2:p2", "at most half of its window"),
        ("drop:1.5", "drop: P must be between 0 and 1, not 1.5"),
        ("drop:nan", "p must be a number, not 'nan'"),
        ("highway:2:-2", "must be odd"),
        ("pyramid:7;3", "pyramid takes sides such as 7,3,2,1"),
        ("mix(relu | relu", "the branches of mix are not closed by a )"),
        ("relu) conv:3:3", "a ) or | stands without a word"),
        ("relu | relu", "a ) or | stands without a word"),
        ("relu(conv:3:3)", "relu is written as relu"),
        ("mix", "mix is written as mix(WORDS | WORDS ...)"),
        ("sum:1(relu | relu)", "sum is written as sum:SCALE(WORDS)"),
        ("mix(aux:1(linear:K))", "aux stands in a row, not in a branch"),
        ("mix(" * 9 + "relu" + ")" * 9, "more than 6 deep"),
        ("sum:1(conv:8:3)", "must keep the shape"),
        ("mix(pool:max:2:s2 | relu)", "leave maps of different sizes"),
        ("conv:9:1 maxout:2", "cannot divide 9 channels"),
        ("pool:max:33", "the map becomes too small for a layer"),
        ("conv:7:3", "must end in scores of its 10 classes"),
        ("conv:10:3 pool:avg:all", "must end in scores of its 10 classes, as in linear:K"),
        ("aux:1(linear:7) linear:K", "so must its auxiliary heads"),
        ("x-1: linear:K", "each row needs a name of its own"),
    ],
)
def test_a_row_that_is_wrong_is_one_sentence(row, sentence):
    with pytest.raises(UserError) as error:
        Chain("net", (row,) if row.startswith(("conv:7", "conv:10", "aux", "x-1")) else (row, "linear:K"))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"kind": "tree"}, "a network's kind must be chain, not 'tree'; update resnets"),
        ({"kind": "chain", "name": "x"}, "lacks rows"),
        ({"kind": "chain", "name": "x", "rows": ["linear:K"], "colour": 1}, "has no field colour"),
        ({"kind": "chain", "name": "x", "rows": "linear:K"}, "rows must be a list of texts"),
        ({"kind": "chain", "name": "x", "rows": []}, "rows must be a non-empty tuple of texts"),
        ({"kind": "chain", "name": "x", "rows": [1]}, "rows must be a non-empty tuple of texts"),
        ({"kind": "chain", "name": 1, "rows": ["linear:K"]}, "name must be text"),
        ({"kind": "chain", "name": "x", "rows": ["linear:K"], "input_size": 0}, "input_size must be a whole number"),
        ({"kind": "chain", "name": "x", "rows": ["linear:K"], "aux": 1}, "aux must be true or false"),
        ({"kind": "chain", "name": "x", "rows": ["linear:K"], "bn_eps": 0}, "bn_eps must be between"),
        ([1], "must be a JSON object"),
    ],
)
def test_a_damaged_description_is_one_sentence(data, sentence):
    with pytest.raises(UserError, match=sentence):
        parse_network(data)


def test_any_row_is_read_or_refused_in_a_sentence():
    """Mutations of real rows: none ends in another exception."""
    draw, rows = random.Random(0), [row for chain in OTHERS.values() for row in chain.rows]
    refused = []
    for _ in range(1500):
        text = list(draw.choice(rows))
        for _ in range(draw.choice([1, 1, 2, 5])):
            text[draw.randrange(len(text))] = draw.choice("()|: 0123x,.-eKps\x00é")
        try:
            Chain("net", ("".join(text), "end: linear:K"))
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > 500
    assert not [sentence for sentence in refused if "\n" in sentence]


def test_fields_of_the_other_kind_are_refused():
    for name, changes, sentence in (
        ("vgg16", {"order": "original"}, "vgg16 has no residual units, and so no order"),
        ("vgg16", {"depth": 20}, "vgg16 has no residual units, and so no depth"),
        ("resnet20", {"aux": False}, "resnet20 is a residual network and has no aux"),
        ("nin", {"num_classe": 3}, "did you mean num_classes"),
    ):
        with pytest.raises(UserError, match=sentence):
            resnets.spec_of(name, **changes)
