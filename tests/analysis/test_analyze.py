"""`resnets analyze`: what it measures, prints, writes and refuses."""

import json
import shutil

import pytest
import torch

import resnets
from resnets.analysis.propagation import propagation
from resnets.cli import main
from resnets.cli.propagation_table import KEY, choose_rows
from resnets.cli.signal_table import LOGGED_KEY
from resnets.counter_rng import order
from resnets.data import load
from resnets.data.augment import Normalize

SMALL = ["--widths", "4,8", "--blocks", "2", "--data", "synthetic:64", "--batch", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with an averaged network."""
    return resnets.train(
        "preresnet20", "synthetic:64", "cifar-quick", length="2ep", batch=32, normalize="pixel", ema=0.9, quiet=True,
        every=2,
        out=tmp_path_factory.mktemp("runs"), network={"widths": (4, 8), "blocks": 2}, device="cpu",
    )  # fmt: skip


def analyses(capsys, *words: str) -> list[dict]:
    assert main(["analyze", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["analyses"]


def test_a_named_network_is_measured_at_its_start(capsys):
    (found,) = analyses(capsys, "preresnet20", *SMALL, "--batches", "2", "--seed", "3")
    images = load("synthetic:64")
    index = order(64, 3, 0)[:16]
    x = Normalize.of(images)(torch.from_numpy(images.train_images[index]))
    net = resnets.create("preresnet20", widths=(4, 8), blocks=2, seed=3)
    wanted = propagation(net, x, torch.from_numpy(images.train_labels[index]), batch=8, seed=3).to_dict()
    assert (found["images"], found["batch"], found["statistics"]) == (16, 8, "batch")
    assert found["network"] == wanted["network"]
    for name, values in wanted["maps"].items():
        assert found["maps"][name] == pytest.approx(values, rel=1e-3, abs=1e-6), name


def test_variants_are_laid_over_each_other(tmp_path, capsys):
    words = ["resnet20", *SMALL, "--vary", "shortcut=identity,scale:0.5:1,plain", "--out", str(tmp_path / "new")]
    assert main(["analyze", *words]) == 0
    shown = capsys.readouterr().out
    assert shown.count("4 units, loss") == 3
    assert "statistics of BN: of the batch" in shown
    assert shown.count(KEY) == 1
    saved = json.loads((tmp_path / "new" / "propagation.json").read_text())
    assert [a["label"].rpartition("shortcut=")[2] for a in saved["analyses"]] == ["identity", "scale:0.5:1", "plain"]
    assert [a["maps"]["product"][0] for a in saved["analyses"]] == [1, 0.25, 0]
    assert saved["provenance"]["versions"]["torch"] == torch.__version__
    assert b"scale:0.5:1" in (tmp_path / "new" / "propagation.svg").read_bytes()
    assert (tmp_path / "new" / "propagation.png").read_bytes().startswith(b"\x89PNG")


def test_a_signal_that_is_no_number_is_written_as_null(run, tmp_path):
    copy = tmp_path / run.path.name
    shutil.copytree(run.path, copy)
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    signal = next(line for line in lines if line["kind"] == "signal")
    signal["epoch"] = float("nan")
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["analyze", str(copy), *SMALL[4:], "--out", str(tmp_path / "out")]) == 0
    saved = json.loads((tmp_path / "out" / "propagation.json").read_text())
    assert saved["logged"][run.path.name][0]["epoch"] is None


def test_a_table_fits_a_terminal_of_80_columns(capsys):
    words = ["--kernels", "one_layer", "--blocks", "60,60", "--shortcut", "scale:0.5", *SMALL[:2], *SMALL[4:]]
    assert main(["analyze", "resnet20", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80, "but for the label"
    rows = [line.split() for line in lines if line[:4].strip().isdigit()]
    assert len(rows) == 24
    assert [int(row[0]) for row in rows][:: len(rows) - 1] == [0, 120]


def test_a_run_is_measured_where_it_ended_and_along_the_way(run, capsys):
    (last,) = analyses(capsys, str(run.path), "--batch", "8", "--device", "cpu")
    assert (last["label"], last["data"]) == (f"{run.path.name}, final", "synthetic:64")
    initial, begun, final = analyses(capsys, str(run.path), "--batch", "8", "--along", "--device", "cpu")
    assert final["maps"] == last["maps"]
    assert [a["label"].rpartition(", ")[2] for a in (initial, begun)] == ["initial", "step 0"]
    assert initial["maps"]["rms"] == pytest.approx(begun["maps"]["rms"])
    assert initial["maps"]["rms"] != pytest.approx(final["maps"]["rms"])
    (file,) = analyses(capsys, str(run.weights), "--batch", "8", "--device", "cpu")
    assert file["maps"] == last["maps"]


def test_a_run_that_began_with_weights_has_no_initial_network(run, tmp_path, capsys):
    tuned = resnets.train(
        "preresnet20", "synthetic:64", "cifar-quick", length="1it", batch=32, normalize="pixel", quiet=True,
        whiten=False, weights=str(run.weights), out=tmp_path, network={"widths": (4, 8), "blocks": 2}, device="cpu",
    )  # fmt: skip
    labels = [a["label"] for a in analyses(capsys, str(tuned.path), "--batch", "8", "--along", "--device", "cpu")]
    assert labels[-1] == f"{tuned.path.name}, final"
    assert f"{tuned.path.name}, initial" not in labels


def test_what_a_run_measured_along_training_is_shown(run, capsys):
    assert main(["analyze", str(run.path), *SMALL[4:], "--along"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(", measured along training 3 times:") == 1
    assert shown.count(LOGGED_KEY) == 1
    table = shown.partition("3 times:")[2].splitlines()
    rows = [line.split() for line in table[3:9]]
    assert [row[:2] for row in rows] == [[step, size] for step in "024" for size in "12"]
    lines = [line for line in run.metrics() if line["kind"] == "signal"]
    assert [float(row[2]) for row in rows] == pytest.approx([v for line in lines for v in line["rms"]], rel=1e-2)
    assert main(["analyze", str(run.path), *SMALL[4:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["logged"] == {run.path.name: lines}
    assert main(["analyze", "preresnet20", *SMALL]) == 0
    assert "along training" not in capsys.readouterr().out


def test_an_unfinished_run_is_measured_at_its_newest_checkpoint(run, tmp_path, capsys):
    copy = tmp_path / "half"
    copy.mkdir()
    (copy / "checkpoints").symlink_to(run.checkpoints)
    (copy / "config.json").write_bytes(run.config_path.read_bytes())
    (found,) = analyses(capsys, str(copy), "--batch", "8", "--statistics", "running", "--device", "cpu")
    assert (found["label"], found["statistics"]) == ("half, step 4", "running")
    (copy / "checkpoints").unlink()
    assert main(["analyze", str(copy)]) == 2
    assert "has neither a final network nor a checkpoint" in capsys.readouterr().err
    (final,) = analyses(capsys, str(run.path), "--batch", "8", "--statistics", "running", "--device", "cpu")
    assert found["maps"]["rms"] == pytest.approx(final["maps"]["rms"]), "the averaged net is the one that is kept"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet21"], "unknown network 'resnet21'"),
        (["nothing/there"], "there is no file nothing/there"),
        (["resnet20", "--vary", "depth=20,32"], "unknown field to vary 'depth'"),
        (["resnet20", "--vary", "order=original,full_preactt"], "did you mean full_preact"),
        (["resnet20", "--vary", "order=original", "--order", "original"], "not both"),
        (["resnet20", "--statistics", "moving"], "unknown statistics"),
        (["resnet20", "--batch", "0"], "--batch"),
        (["resnet20", "--batch", "40", "--batches", "2"], "has 64 training images; 80 were asked for"),
        (["resnet20", "--num-classes", "7"], "has 10 classes and resnet20 has 7"),
        (["a.safetensors", "--order", "original"], "says itself what its network is"),
        (["theirs.pth"], "does not say which network it holds"),
        (["."], "has no final.safetensors: the run is not finished, or it is no run"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    net = resnets.create("resnet20", widths=(4, 8), blocks=1)
    resnets.save_weights(net, "a.safetensors")
    torch.save(net.state_dict(), "theirs.pth")
    small = ["--widths", "4,8", "--blocks", "1"] if words[0] == "resnet20" else []
    assert main(["analyze", *words, *small, "--data", "synthetic:64"]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert (told.err.count("\n"), told.out) == (1, "")


def test_choose_rows():
    assert choose_rows([(0, 3), (4, 6)], 24) == list(range(7))
    chosen = choose_rows([(0, 0), (1, 111), (112, 222), (223, 333)], 24)
    assert {0, 1, 111, 112, 222, 223, 333} <= set(chosen)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 25
