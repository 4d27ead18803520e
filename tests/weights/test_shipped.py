"""The trained networks inside the package keep what their cards and the published results say."""

import json
import re
import socket
from pathlib import Path

import pytest
from safetensors import safe_open

import resnets
from pictures import REAL
from resnets.cache import cache_dir
from resnets.cli import main
from resnets.weights import pretrained

RESULTS = Path(__file__).parents[2] / "results" / "cifar"
ORIGIN = ("command", "commit", "began", "versions", "machine")
RECIPES = {
    "preresnet12_w48.cifar10": "cifar-94",
    "preresnet20.cifar10": "cifar-hours",
    "resnet20.cifar10": "cifar-hours",
}
NAMES = tuple(RECIPES)


def published(name):
    """The run that a shipped network comes from: the first seed, never the best."""
    run, *_ = json.loads((RESULTS / f"{name.partition('.')[0]}-{RECIPES[name]}.json").read_text())["runs"]
    assert run["seed"] == 0
    return run


def card_of(name):
    return pretrained.file_of(name).with_suffix(".md").read_text()


def test_all_shipped_networks_are_tested():
    assert tuple(pretrained.index()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_published_run(name):
    test = published(name)["result"]["test"]
    card = card_of(name)
    assert f"error {test['error']:.2f} % (95 % interval" in card
    assert f"`{published(name)['command']}`" in card
    with safe_open(pretrained.file_of(name), "numpy") as file:
        told = json.loads(file.metadata()["provenance"])
    assert {key: told[key] for key in ORIGIN} == {key: published(name)[key] for key in ORIGIN}


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_published_error(name, capsys):
    """Other processors round otherwise, which may move a handful of images over a border."""
    if not (cache_dir() / "cifar10.npy").exists():
        pytest.skip("CIFAR-10 is not in the cache; `resnets data fetch cifar10` gets it")
    assert main(["eval", name, "--json"]) == 0
    found, told = json.loads(capsys.readouterr().out), published(name)["result"]["test"]
    assert found["images"] == told["images"] == 10_000
    rounded = re.search(r"rounded to float16, with which (\d+) of 10000 are wrong", card_of(name))
    assert abs(found["wrong"] - (int(rounded[1]) if rounded else told["wrong"])) <= 3
    assert abs(found["wrong"] - told["wrong"]) <= (10 if rounded else 3)
    assert pretrained.file_of(name).stat().st_size < 4_000_000


def test_photographs_of_dogs_are_dogs_out_of_the_box(capsys):
    """Those of ImageNet's breeds that are here, by a network that knows 32x32 pixels; chance would tell one in ten."""
    dogs = [str(folder) for folder in sorted(REAL.glob("0*")) if 151 <= int(folder.name) <= 268]
    if not dogs:
        pytest.skip(f"no photographs in {REAL}")
    assert main(["predict", *dogs, "--json", "--top", "1"]) == 0
    told = [picture["classes"][0]["name"] for picture in json.loads(capsys.readouterr().out)]
    assert len(told) == len(dogs)
    assert told.count("dog") > len(told) / 2


def test_it_is_created_without_a_connection(monkeypatch):
    def refused(*words):
        raise OSError("no network here")

    monkeypatch.setattr(socket, "socket", refused)
    net = resnets.create("preresnet20.cifar10", pretrained=True)
    assert (net.spec.name, net.spec.num_classes) == ("preresnet20", 10)


def test_a_name_that_is_not_shipped_is_told_those_that_are(capsys):
    assert main(["eval", "preresnet110.cifar10"]) == 2
    assert f"no pretrained 'preresnet110.cifar10': this version of the package ships {', '.join(NAMES)}." in (
        capsys.readouterr().err
    )
