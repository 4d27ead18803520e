"""`resnets reproduce signals`: analyses of new weights and of trained runs, in four digits."""

import json

import pytest
import torch

from resnets import records
from resnets.cli import main
from resnets.experiments import signals
from resnets.nn import build
from resnets.papers.variants import Variant, list_variants


@pytest.fixture
def few(monkeypatch):
    """A grid of two networks on made-up images."""
    chosen = (Variant("exclusive_gate:-6", "original", "basic", 20), Variant("scale:0.5:1", "full_preact", "basic", 20))
    monkeypatch.setattr(signals, "DATA", "synthetic:64")
    monkeypatch.setattr(signals, "list_groups", lambda: [(20, "basic")])
    monkeypatch.setattr(signals, "list_variants", lambda layers, kernels: chosen)
    return chosen


def test_the_product_of_equations_7_and_8_is_that_of_the_gates_in_float64(few, tmp_path, capsys):
    assert main(["reproduce", "signals", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("1 files written, 0 kept\n")
    found = records.SIGNALS.read(tmp_path / "analysis/units/20-basic.json")
    gated, scaled = found["signals"]
    assert found["spans"] == [[0, 3], [4, 6], [7, 9]]
    starts = [found["at"].index(first) for first, _ in found["spans"]]
    # constant scaling: 0.5 for each unit of a stage that keeps the size of the map
    assert [scaled["product"][i] for i in starts] == [0.5**3, 0.5**2, 0.5**2]
    assert scaled["predicted"] == [0.5**3, 0.5**2, 0.5**2]
    # gates: the mean of 1 - sigmoid(W x + b), weighted by x squared, computed here by the formula
    from resnets.counter_rng import order
    from resnets.data import open_labelled
    from resnets.data.transform import normalization

    images = open_labelled("synthetic:64")
    net = build(few[0].spec, seed=0)
    index = order(len(images.train_labels), 0, 0)[: signals.IMAGES]
    x = normalization(net.metadata, net.spec, images)(torch.from_numpy(images.train_images[index])).double()
    net.double().train()
    factors = []
    with torch.no_grad():
        x = net.stem(x)
        for unit in net.units:
            weight, bias = (parameter.double() for parameter in unit.shortcut.parameters())
            before, resized = x, unit.resize(unit.shared(x))
            gate = torch.sigmoid(torch.einsum("oi,nihw->nohw", weight[:, :, 0, 0], resized) + bias[:, None, None])
            x = unit(x)
            squares = before.square() if before.shape == x.shape else None
            factors.append(None if squares is None else (((1 - gate) * squares).sum() / squares.sum()).item())
    for i, (first, last) in zip(starts, found["spans"], strict=True):
        product = torch.tensor(factors[first:last], dtype=torch.float64).prod().item()
        assert gated["product"][i] == pytest.approx(product, rel=1e-4)


def test_complete_files_are_kept_and_incomplete_ones_written_again(few, tmp_path, capsys):
    path = tmp_path / "analysis/units/20-basic.json"
    assert main(["reproduce", "signals", "--results", str(tmp_path), "--dry-run"]) == 0
    assert not path.exists()
    assert str(path) in capsys.readouterr().out
    main(["reproduce", "signals", "--results", str(tmp_path)])
    first = path.read_bytes()
    assert main(["reproduce", "signals", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("0 files written, 1 kept\n")
    assert path.read_bytes() == first
    shorter = json.loads(first)
    del shorter["signals"][1]
    path.write_text(json.dumps(shorter))
    main(["reproduce", "signals", "--results", str(tmp_path)])
    assert len(json.loads(path.read_bytes())["signals"]) == 2


def test_trained_rows_are_analysed_where_their_runs_are(few, tmp_path, capsys):
    where = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "runs"), "--budget", "smoke"]
    assert main(["reproduce", "table1", "--rows", "resnet110-cifar10", "--seeds", "1", *where]) == 0
    assert main(["reproduce", "signals", *where]) == 0
    found = records.SIGNALS.read(tmp_path / "results/analysis/trained/smoke/resnet110-cifar10.json")
    assert (found["row"], found["budget"], found["trained_with_seed"]) == ("resnet110-cifar10", "smoke", 0)
    (one,) = found["signals"]
    assert (one["shortcut"], one["order"]) == ("identity", "original")
    assert one["product"] == [1.0] * len(found["at"])
    capsys.readouterr()
    assert main(["reproduce", "signals", *where]) == 0
    assert capsys.readouterr().out == "0 files written, 2 kept\n"


def test_long_networks_keep_the_first_and_the_last_map_of_each_size():
    spans = ((0, 0), (1, 111), (112, 222), (223, 333))
    at = signals.choose_maps(spans)
    assert len(at) < 70
    assert set(at) >= {i for span in spans for i in span}
    assert at == sorted(set(at))


@pytest.mark.parametrize("words", [["signals", "table1"], ["signals", "--shard", "1/2"], ["signals", "--seeds", "2"]])
def test_what_means_nothing_for_signals_is_refused(words, capsys):
    assert main(["reproduce", *words]) == 2
    assert "signals are analysed" in capsys.readouterr().err


def test_the_grid_has_all_networks():
    assert len(list_variants(110, "basic")) == 51
