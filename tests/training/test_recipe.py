"""Recipes as data: what is accepted, what is refused and in which words."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from benchmarks.lines import NET94
from resnets.errors import UserError
from resnets.recipe import RECIPES, Recipe, iterations, parse_span, recipe_of, resolve_augment
from resnets.zoo import NETWORKS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_valid_and_survives_json(name):
    recipe = recipe_of(name)
    fields = json.loads(json.dumps(recipe.to_dict()))
    assert fields.pop("name") == name
    assert dataclasses.replace(recipe_of("cifar-paper", **fields), name=name) == recipe


def test_the_paper_is_the_default():
    assert Recipe("cifar-paper") == RECIPES["cifar-paper"]


def test_the_recipes_of_the_papers_say_what_the_papers_say():
    paper, b64, v1 = (RECIPES[name] for name in ("cifar-paper", "cifar-paper-b64", "cifar-v1"))
    assert (paper.batch, paper.lr, paper.momentum, paper.weight_decay, paper.decay_on) == (128, 0.1, 0.9, 1e-4, "all")
    assert (paper.pad, paper.flip, paper.validation) == (4, "random", 0)
    assert (b64.batch, b64.micro_batch, b64.length) == (64, 32, "200ep")
    assert v1.validation == 5000
    assert dataclasses.replace(v1, name="cifar-paper", validation=0) == paper


@pytest.mark.parametrize("network", ["preresnet20", "resnet20"])
def test_the_recipe_of_the_weights_in_the_package_is_unchanged(network):
    published = json.loads((ROOT / "results" / "cifar" / f"{network}-cifar-hours.json").read_text())
    assert recipe_of("cifar-hours").to_dict() == published["recipe"]


def test_make_train_and_the_documents_name_the_same_network_and_length():
    (line,) = re.findall(r"resnets train (\S+) --data cifar10 --recipe (\S+)", (ROOT / "Makefile").read_text())
    network, quick = line[0], RECIPES[line[1]]
    assert network in NETWORKS
    decision = (ROOT / "docs" / "decisions" / "0004-cifar-quick.md").read_text()
    assert f"## The second version: `{network}` for {quick.length.removesuffix('ep')} epochs" in decision
    rows = (ROOT / "docs" / "training.md").read_text().splitlines()
    for recipe, name in ((quick.name, network), ("cifar-94", NET94)):
        assert any(row.startswith(f"| `{recipe}` |") and f"for `{name}`" in row for row in rows)


def test_augment_auto_is_decided_by_how_large_images_are():
    tune = recipe_of("finetune")
    assert tune.augment == "auto"
    assert [resolve_augment(tune, small).augment for small in (True, False)] == ["pad", "aspect"]
    assert resolve_augment(recipe_of("finetune", augment="scale"), small=True).augment == "scale"


BAD = [
    ({"batch": 0}, "batch must be between 1 and 1048576, not 0"),
    ({"batch": 12.5}, "batch must be a whole number, not 12.5"),
    ({"batch": True}, "batch must be a whole number, not True"),
    ({"batch": "128"}, "batch must be a whole number, not '128'"),
    ({"micro_batch": -1}, "micro_batch must be between 0 and 1048576"),
    ({"lr": -0.1}, "lr must be at least 0"),
    ({"lr": float("nan")}, "lr must be a finite number, not nan"),
    ({"lr": float("inf")}, "lr must be a finite number, not inf"),
    ({"lr": "fast"}, "lr must be a finite number, not 'fast'"),
    ({"momentum": 1.5}, "momentum must be between 0 and 1"),
    ({"label_smoothing": 2}, "label_smoothing must be between 0 and 1"),
    ({"ema": -0.1}, "ema must be between 0 and 1"),
    ({"peak": 1.1}, "peak must be between 0 and 1"),
    ({"nesterov": 1}, "nesterov must be true or false, not 1"),
    ({"nesterov": True, "momentum": 0.0}, "nesterov needs a momentum above 0"),
    ({"schedule": "multistp"}, "unknown schedule 'multistp': did you mean multistep"),
    ({"decay_on": "some"}, "unknown decay_on 'some'"),
    ({"flip": "vertical"}, "unknown flip 'vertical'"),
    ({"normalize": "none"}, "unknown normalize 'none'"),
    ({"precision": "float8"}, "unknown precision 'float8'"),
    ({"length": "64000"}, "written as 64000it or 164ep, not '64000'"),
    ({"length": 64000}, "length must be text, not 64000"),
    ({"warmup": "0.5it"}, "not '0.5it'"),
    ({"warmup": "-1it"}, "not '-1it'"),
    ({"milestones": "80ep,121"}, "not '121'"),
    ({"sizes": "16"}, "sizes must look like 16@0,24@0.5,32@0.8, not '16'"),
    ({"sizes": "0@0"}, "sizes must look like"),
    ({"sizes": "16@0,32@1"}, "sizes must look like"),
    ({"sizes": "16@0.1"}, "sizes must begin at 0"),
    ({"sizes": "16@0,32@0.8,24@0.5"}, "go up in time"),
    ({"validation": -5}, "validation must be at least 0"),
    ({"rate": 0.1}, "unknown option 'rate'"),
    ({"name": "mine"}, "unknown option 'name'"),
    ({"lr": 0.1, "learning_rate": 0.2}, "learning_rate and lr are the same option"),
    ({"optimizer": "AdamW", "optimizer_options": "betas"}, "written as betas=0.9,0.95,eps=1e-6, not 'betas'"),
    ({"optimizer": "AdamW", "optimizer_options": "eps=small"}, "eps must be numbers, true, false or none"),
    ({"optimizer_options": "eps=1e-6"}, "are for classes of torch.optim"),
    ({"moment": 0.1}, "did you mean momentum"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[str(changes) for changes, _ in BAD])
def test_a_bad_value_is_refused_in_one_sentence(changes, words):
    with pytest.raises(UserError) as told:
        recipe_of("cifar-paper", **changes)
    sentence = str(told.value)
    assert words in sentence
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence


def test_an_unknown_recipe_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown recipe 'cifar-papr': did you mean cifar-paper"):
        recipe_of("cifar-papr")


def test_a_change_leaves_the_table_alone():
    before = RECIPES["cifar-paper"].to_dict()
    assert recipe_of("cifar-paper", lr=0.05).lr == 0.05
    assert recipe_of(recipe_of("cifar-paper", lr=0.05), batch=64).lr == 0.05
    assert RECIPES["cifar-paper"].to_dict() == before


def test_a_whole_number_and_its_float_are_one_recipe():
    one, other = recipe_of("cifar-paper", lr=1), recipe_of("cifar-paper", lr=1.0)
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [("64000it", 64000, "it"), ("164ep", 164, "ep"), ("0.5ep", 0.5, "ep"), (".5ep", 0.5, "ep"), (" 0it ", 0, "it")],
)
def test_a_span_is_a_number_and_a_unit(text, number, unit):
    assert parse_span(text) == (number, unit)


@pytest.mark.parametrize(
    "text", ["", "it", "ep", "5", "5 epochs", "5.it", "1e3it", "infep", "nanep", "5itep", "5it\n6it"]
)
def test_what_is_no_span_is_refused(text):
    with pytest.raises(UserError, match="a span of training is written as 64000it or 164ep"):
        parse_span(text)


@pytest.mark.parametrize(
    ("span", "images", "batch", "steps"),
    [
        ("64000it", 50000, 128, 64000),
        ("164ep", 50000, 128, 64063),  # 64062.5, rounded up
        ("200ep", 50000, 64, 156250),
        ("80ep", 50000, 64, 62500),
        ("121ep", 50000, 64, 94532),  # 94531.25
        ("0.5ep", 45000, 128, 176),  # 175.78
        ("1.1ep", 50000, 100, 550),  # 550.0000000000001 in floating point
        ("0ep", 50000, 128, 0),
        ("1ep", 10, 128, 1),
    ],
)
def test_epochs_become_whole_steps_rounded_up(span, images, batch, steps):
    assert iterations(span, images, batch) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", ()),
        ("32@0", ((32, 0.0),)),
        ("16@0,24@0.5,32@0.8", ((16, 0.0), (24, 0.5), (32, 0.8))),
        (" 16@0 , 32@.25 ,", ((16, 0.0), (32, 0.25))),
    ],
)
def test_sizes_are_pairs_of_a_side_and_a_share(text, steps):
    assert recipe_of("cifar-paper", sizes=text).size_steps == steps
