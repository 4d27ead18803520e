"""`resnets import`: others' weights become files that need no further words."""

import hashlib
import json

import pytest
import torch

import resnets
from resnets.cli import main
from resnets.metadata import parse_metadata as about
from resnets.weights.files import read_metadata
from resnets.weights.networks import to_peer

NETWORK = ["--network", "resnet18", "--widths", "4,8,8,8", "--num-classes", "3"]


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = resnets.create("resnet18", widths=(4, 8, 8, 8), num_classes=3, seed=0)
    torch.save(to_peer(net, "torchvision"), "theirs.pth")
    (tmp_path / "classes.json").write_text(json.dumps({"0": ["n1", "big_cat"], "1": ["n2", "dog"], "2": ["n3", "cat"]}))
    return net


def test_another_librarys_file_says_all_about_itself(net, capsys):
    words = ["--classes", "classes.json", "--mean", "0.5,0.4,0.3", "--std", "0.1,0.2,0.3", "--crop", "40@48"]
    assert main(["import", "theirs.pth", "-o", "ours.safetensors", *NETWORK, *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ours.safetensors"
    loaded = resnets.load("ours.safetensors")
    for name, tensor in net.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    said = about(read_metadata("ours.safetensors"), loaded.spec, "")
    assert (said.classes, said.folders) == (("big cat", "dog", "cat"), ("n1", "n2", "n3"))
    read = said.preprocessing
    assert (read.mean, read.std, read.crop, read.resize) == ((0.5, 0.4, 0.3), (0.1, 0.2, 0.3), 40, 48)
    with open("theirs.pth", "rb") as file:
        assert said.provenance["sha256"] == hashlib.sha256(file.read()).hexdigest()
    assert said.provenance["source"] == "torchvision's resnet, from theirs.pth"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.pth", *NETWORK], "there is no file absent.pth"),
        (["absent.tgz"], "there is no file absent.tgz"),
        (["classes.json"], "is not the description of a Keras net"),
        (["classes.json", *NETWORK], "can only be Keras's ResNet-50"),
        (["theirs.pth", *NETWORK, "--mean", "0.5"], "--mean needs 3 numbers"),
        (["theirs.pth", *NETWORK, "--std", "0.5,0,1"], "--std must be above 0"),
        (["theirs.pth", *NETWORK, "--crop", "48@40"], "a crop of 48 does not fit"),
        (["theirs.pth", *NETWORK, "--classes", "theirs.pth"], "must be JSON with a name for each of 3 classes"),
        (["theirs.pth", *NETWORK, "--classes", "absent.json"], "cannot read absent.json"),
    ],
)
def test_mistakes_in_import_get_one_sentence(net, tmp_path, capsys, words, message):
    assert main(["import", *words, "-o", "ours.safetensors"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "ours.safetensors").exists()
