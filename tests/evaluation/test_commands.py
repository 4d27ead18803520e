"""`resnets eval`: runs, our own files, another library's weights with a known truth."""

import json
import os
from pathlib import Path

import pytest
import torch

import resnets
from resnets.cache import cache_dir
from resnets.cli import main
from resnets.weights.networks import to_peer

SHARED = Path(os.environ.get("RESNETS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(scope="module")
def net():
    return resnets.create("resnet20", widths=(4, 8, 8), blocks=1, resize="pad_both", seed=0)


def test_akamasters_resnet20_is_91_73_per_cent_right(capsys):
    """Another's weights, another's preprocessing, the official images: 827 of 10,000 wrong, exactly."""
    weights = SHARED / "weights" / "akamaster_resnet20-12fca82f.th"
    if not weights.exists():
        pytest.skip("akamaster's weights are not here")
    if not (cache_dir() / "cifar10.npy").exists():
        pytest.skip("CIFAR-10 is not in the cache; `resnets data fetch cifar10` gets it")
    assert main(["eval", str(weights), "--network", "resnet20", "--data", "cifar10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["wrong"], found["images"]) == (827, 10_000)
    assert found["network"]["resize"] == "pad_both"


def test_a_run_is_tested_as_it_was_trained(tmp_path, capsys):
    run = resnets.train(
        "preresnet20", "synthetic:128", "cifar-quick", length="2ep", batch=32, out=tmp_path, quiet=True,
        normalize="pixel", network={"widths": (4, 8), "blocks": 1},
    )  # fmt: skip
    assert main(["eval", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrong"] == run.result["test"]["wrong"]
    assert found["loss"] == pytest.approx(run.result["test"]["loss"], rel=1e-5)
    assert main(["eval", str(run.weights), "--json", "--precise-bn", "96"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] != found["loss"]


def test_a_peers_file_brings_its_conventions_and_its_preprocessing(tmp_path, net, capsys):
    torch.save(to_peer(net, "akamaster"), tmp_path / "a.th")
    words = ["eval", str(tmp_path / "a.th"), "--network", "resnet20", "--widths", "4,8,8", "--blocks", "1"]
    assert main([*words, "--data", "synthetic:64", "--json"]) == 0
    by_default = json.loads(capsys.readouterr().out)
    assert by_default["network"]["resize"] == "pad_both"
    assert main([*words, "--data", "synthetic:64", "--normalize", "channel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] != by_default["loss"]
    assert main([*words, "--data", "synthetic:64"]) == 0
    shown = capsys.readouterr().out
    assert "named as in akamaster" in shown
    assert "95 % interval" in shown


@pytest.mark.parametrize("engine", ["auto", "plain", "frozen", "onnxruntime", "openvino"])
def test_every_engine_finds_the_same_error(tmp_path, net, capsys, engine):
    if engine in ("onnxruntime", "openvino"):
        pytest.importorskip("onnx")
        pytest.importorskip(engine)
    resnets.save_weights(net, tmp_path / "a.safetensors")
    # Precise BN comes first: an engine that was made before it would test other statistics.
    words = ["eval", str(tmp_path / "a.safetensors"), "--data", "synthetic:64", "--precise-bn", "64", "--json"]
    words += ["--device", "cpu", "--engine"]
    assert main([*words, "plain"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert main([*words, engine]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"] == {"auto": "frozen"}.get(engine, engine)
    assert found["wrong"] == wanted["wrong"]
    assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.th", "--network", "resnet20", "--resize", "pad", "--widths", "4,8,8", "--blocks", "1"], "pad_both"),
        (["a.th", "--network", "resnet20"], "holds a network with blocks=(1, 1, 1), widths=(4, 8, 8) (resnet8)"),
        (["a.safetensors", "--network", "resnet20"], "says itself what its network is"),
        (["a.safetensors", "--data", "cifar11"], "cifar11"),
        (["a.safetensors", "--data", "synthetic:64", "--normalize", "colour"], "unknown normalize 'colour'"),
        (["."], "has no final.safetensors"),
        (["a.safetensors", "--data", "synthetic:64", "--device", "gpu"], "there is no device 'gpu'"),
        (
            ["a.safetensors", "--data", "synthetic:64", "--engine", "froze"],
            "unknown engine 'froze': did you mean frozen",
        ),
        (["b.th"], "there is no file"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path, monkeypatch, capsys, net, words, message):
    monkeypatch.chdir(tmp_path)
    torch.save(to_peer(net, "akamaster"), "a.th")
    resnets.save_weights(net, "a.safetensors")
    assert main(["eval", *words]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_data_of_another_kind_is_refused(tmp_path, capsys):
    resnets.save_weights(resnets.create("resnet20", blocks=1, num_classes=7), tmp_path / "a.safetensors")
    assert main(["eval", str(tmp_path / "a.safetensors"), "--data", "synthetic:64"]) == 2
    assert "has 10 classes and resnet20 has 7" in capsys.readouterr().err
