"""A finished run becomes a pretrained network: in a folder of its own here, never in the package."""

import json

import pytest
import torch

import resnets
from resnets.cli import main
from resnets.weights import pretrained
from tools import publish_weights

SMALL = {"length": "2ep", "batch": 32}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """resnet20 on a handful of images: what it learns does not matter here."""
    return resnets.train(
        "resnet20", "synthetic:64", "cifar-quick", out=tmp_path_factory.mktemp("runs"), quiet=True, **SMALL
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "weights")
    return tmp_path / "weights"


def test_a_shipped_network_is_the_runs(run, folder, capsys):
    assert publish_weights.main([str(run.path)]) == 0
    name = "resnet20.synthetic:64"
    assert name in capsys.readouterr().out
    net, trained = resnets.create(name, pretrained=True), resnets.load(run.weights)
    assert net.spec == trained.spec
    for key, tensor in trained.state_dict().items():
        assert torch.equal(net.state_dict()[key], tensor)
    assert resnets.create(name, pretrained=True, dtype=torch.float64).classifier.weight.dtype == torch.float64
    assert main(["eval", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrong"] == run.result["test"]["wrong"]
    assert main(["info", name, "--json"]) == 0


def test_a_network_in_half_precision_is_tested_again_and_used_in_float32(run, folder, capsys):
    assert publish_weights.main([str(run.path), "--half"]) == 0
    name = "resnet20.synthetic:64"
    trained, net = resnets.load(run.weights), resnets.create(name, pretrained=True)
    for key, tensor in trained.state_dict().items():
        assert net.state_dict()[key].dtype == tensor.dtype
        assert torch.equal(net.state_dict()[key], tensor.half().to(tensor.dtype))
    whole = sum(tensor.numel() * tensor.element_size() for tensor in trained.state_dict().values())
    assert (folder / f"{name}.safetensors").stat().st_size < 0.55 * whole
    card = (folder / f"{name}.md").read_text()
    assert (
        f"rounded to float16, with which {resnets.evaluate(name).wrong} of {run.result['test']['images']} are wrong"
        in card
    )
    assert f"{run.result['test']['wrong']} of {run.result['test']['images']} wrong" in card


def test_the_card_tells_data_recipe_error_limits_licence_and_hash(run, folder):
    name = publish_weights.publish(run)
    card = (folder / f"{name}.md").read_text()
    test = run.result["test"]
    for word in (
        f"error {test['error']:.2f} % (95 % interval",
        f"{test['wrong']} of {test['images']} wrong",
        "cifar-quick",
        run.identity.digest,
        "Limits:",
        "Licence:",
        json.loads((folder / "index.json").read_text())[name],
    ):
        assert word in card


def test_a_damaged_file_is_refused(run, folder):
    name = publish_weights.publish(run)
    path = folder / f"{name}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(resnets.UserError, match="is damaged: its sha256 is"):
        resnets.create(name, pretrained=True)
    path.unlink()
    with pytest.raises(resnets.UserError, match="reinstall the package"):
        resnets.create(name, pretrained=True)


def test_names_that_are_not_shipped_are_told(run, folder):
    with pytest.raises(resnets.UserError, match="ships no trained networks"):
        resnets.create("preresnet20.cifar10", pretrained=True)
    publish_weights.publish(run)
    with pytest.raises(
        resnets.UserError, match=r"no pretrained 'resnet20\.cifar10': this version .* ships resnet20\.synthetic:64\."
    ):
        resnets.create("resnet20.cifar10", pretrained=True)
    with pytest.raises(resnets.UserError, match="blocks cannot be combined with pretrained"):
        resnets.create("resnet20.synthetic:64", pretrained=True, blocks=3)


def test_models_lists_what_is_shipped(run, folder, capsys):
    assert main(["models", "resnet20"]) == 0
    assert capsys.readouterr().out.endswith("\ntrained, in the package: none of these\n")
    name = publish_weights.publish(run)
    assert main(["models", "*resnet20"]) == 0
    assert capsys.readouterr().out.endswith(f"\ntrained, in the package: {name}\n")
    assert main(["models", "*resnet20", "--json"]) == 0
    told = {row["name"]: row["pretrained"] for row in json.loads(capsys.readouterr().out)}
    assert told == {"resnet20": [name], "preresnet20": []}


def test_a_training_begins_at_a_shipped_network(run, folder, tmp_path):
    name = publish_weights.publish(run)
    words = {"length": "1it", "lr": 0.0, "weight_decay": 0.0, "out": tmp_path, "quiet": True}
    tuned = resnets.train("resnet20", "synthetic:40", "finetune", weights=name, **words)
    ours, theirs = (resnets.load(path).state_dict() for path in (tuned.weights, run.weights))
    assert torch.equal(ours["units.0.residual.conv1.weight"], theirs["units.0.residual.conv1.weight"])
    assert tuned.identity.recipe.augment == "pad"


def test_predict_takes_the_shipped_network_unless_told_otherwise(run, folder, monkeypatch, tmp_path, capsys):
    from PIL import Image

    Image.new("RGB", (40, 40), "red").save(tmp_path / "a.png")
    assert main(["predict", str(tmp_path / "a.png")]) == 2
    assert "name the network to use: --weights" in capsys.readouterr().err
    name = publish_weights.publish(run)
    monkeypatch.setattr("resnets.evaluation.predict.DEFAULT", name)
    assert main(["predict", str(tmp_path / "a.png"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["classes"]) == 5


def test_only_finished_runs_of_named_networks_are_shipped(tmp_path, folder, capsys):
    changed = resnets.train(
        "resnet20", "synthetic:64", "cifar-quick", out=tmp_path, quiet=True, network={"widths": (4, 8, 8)}, **SMALL
    )
    assert publish_weights.main([str(changed.path)]) == 2
    assert "only named networks are shipped" in capsys.readouterr().err
    changed.result_path.unlink()
    assert publish_weights.main([str(changed.path)]) == 2
    assert "only a run with a test error can be shipped" in capsys.readouterr().err
    assert not folder.exists()


def test_what_the_package_ships_is_what_its_index_says():
    """Every listed file is there with its hash and its card, and every file is listed."""
    for name in pretrained.index():
        assert pretrained.file_of(name).with_suffix(".md").exists()
        assert resnets.create(name, pretrained=True).spec.name == name.partition(".")[0]
    listed = {f"{name}.safetensors" for name in pretrained.index()}
    assert {path.name for path in pretrained.FOLDER.glob("*.safetensors")} == listed
