"""What `resnets info --memory` and `--engine` print."""

import json

import pytest

from resnets.cli import main
from resnets.describe import training
from resnets.engine import MODES

NETWORK = ["info", "preresnet56", "--widths", "4,6,10"]


def told(capsys, *words):
    assert main([*NETWORK, *words]) == 0
    return capsys.readouterr().out


def test_memory_has_a_line_for_each_mode(capsys):
    out = told(capsys, "--memory", "--batch", "64")
    assert "Memory of training with batches of 64, in MiB;" in out
    lines = out[out.index("mode  ") :].splitlines()
    assert [line.split()[0] for line in lines[1:4]] == list(MODES)
    assert "How it is trained here" not in out


@pytest.mark.parametrize(("room", "auto"), [(None, "fast"), (1 << 40, "fast"), (1 << 20, "min")])
def test_memory_as_json_says_what_fits(capsys, monkeypatch, room, auto):
    monkeypatch.setattr(training, "available", lambda device: room)
    memory = json.loads(told(capsys, "--memory", "--json"))["memory"]
    assert (memory["batch"], memory["available"], memory["auto"]) == (128, room, auto)
    assert list(memory["modes"]) == list(MODES)
    for row in memory["modes"].values():
        assert row["total"] == row["base"] + row["weights"] + row["maps"]
        assert row["fits"] is (room != 1 << 20)


def test_larger_images_take_more(capsys):
    small, large = (
        json.loads(told(capsys, "--memory", "--json", "--size", side))["memory"]["modes"] for side in ("32", "64")
    )
    for mode in MODES:
        assert large[mode]["maps"] == pytest.approx(4 * small[mode]["maps"], rel=1e-3)


def test_engine_says_what_was_chosen_and_why(capsys):
    out = told(capsys, "--engine")
    assert "How it is trained here:" in out
    for word in ("device", "layout", "optimizer", "threads", "allocator", "memory", "units 0 to 26"):
        assert f"\n{word} " in out
    rows = json.loads(told(capsys, "--engine", "--json"))["engine"]
    assert all(row["what"] and row["value"] and row["reason"] for row in rows)


def test_a_batch_alone_is_refused(capsys):
    assert main([*NETWORK, "--batch", "4"]) == 2
    assert "--batch goes with --memory or --engine." in capsys.readouterr().err
