"""`train --save-config` writes what `--config` reads back as the same run."""

from pathlib import Path

import pytest
import tomllib

from resnets.cli import main
from resnets.cli.options import read_config, write_config
from resnets.runs import Run

GIVEN = [
    *("train", "preresnet20", "--data", "synthetic:40", "--widths", "4,8,8", "--blocks", "1", "--lr", "0.05"),
    *(
        "--steps",
        "1",
        "--batch",
        "8",
        "--shortcut",
        "exclusive_gate:-6",
        "--seed",
        "3",
        "--no-channels-last",
        "--quiet",
    ),
    *("--device", "cpu", "--engine", "plain"),
]


def test_the_same_run_comes_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*GIVEN, "--save-config", "new/mine.toml"]) == 0
    (run,) = Path("runs").iterdir()
    written = Path("new/mine.toml").read_text()
    assert written.startswith("# resnets train preresnet20 --config new/mine.toml\n")
    content = tomllib.loads(written)
    assert content["recipe"] == Run(run).identity.recipe.name  # what auto chose
    assert content["channels_last"] is False
    assert content["widths"] == [4, 8, 8]
    before = (run / "result.json").read_bytes()
    capsys.readouterr()
    assert main(["train", "preresnet20", "--config", "new/mine.toml", "--save-config", "again.toml"]) == 0
    assert [*Path("runs").iterdir()] == [run]
    assert (run / "result.json").read_bytes() == before
    assert tomllib.loads(Path("again.toml").read_text()) == content
    assert main(["train", "preresnet20", "--config", "new/mine.toml", "--seed", "4", "--save-config", "4.toml"]) == 0
    assert tomllib.loads(Path("4.toml").read_text()) == {**content, "seed": 4}
    assert len([*Path("runs").iterdir()]) == 2


@pytest.mark.parametrize("wrong", [["--lr", "-1"], ["--recipe", "none"], ["--order", "none"]])
def test_a_refused_command_writes_nothing(wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*GIVEN, *wrong, "--save-config", "mine.toml"]) == 2
    assert not Path("mine.toml").exists()


def test_every_kind_of_value_is_read_back(tmp_path):
    values = {
        "data": 'a "folder"\\ with \x7f, é and \U0001f600\n',
        "seed": 2**64 - 1,
        "lr": 1e-05,
        "flip": True,
        "seeds": (0, 1),
        "vary": ["order=original,full_preact"],
    }
    write_config(tmp_path / "a.toml", "a line\nwith a break", values)
    found = read_config(tmp_path / "a.toml")
    assert found == {**values, "seeds": [0, 1]}
