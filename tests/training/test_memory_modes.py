"""Training in every memory mode: the same curves, resumed to the bit, told in the config, on one process or two."""

import os
import socket
import subprocess
import sys

import pytest
import tiny
import torch
import torch.distributed as dist

from resnets import runs
from resnets.cli import main
from resnets.engine import memory_estimate, runners
from resnets.engine.memory_estimate import forecast
from resnets.engine.native.build import load
from resnets.engine.native.kernels import VERSION
from resnets.errors import UserError
from resnets.nn.structure import PartChanges
from resnets.training import session
from resnets.training.loop import Trainer
from resnets.zoo import spec_of

DEEPER = {"widths": (4, 6, 8), "blocks": 3, "shortcut": "dropout"}
SHORT = {"length": "6it", "warmup": "0it", "milestones": "", "log_every": 1, "lr": 0.02}


def losses(run):
    return [line["loss"] for line in run.metrics() if line["kind"] == "train"]


def test_all_engines_and_modes_train_the_same_run(tmp_path):
    """Every mode computes the same up to rounding; with the same masks, crops and averages."""
    options = {**SHORT, "network": DEEPER, "ema": 0.5, "micro_batch": 20}
    plain = tiny.train_tiny(tmp_path / "plain", engine="plain", **options)
    recorded = plain.config["engine"]
    assert recorded == {
        "engine": "plain", "memory": "fast", "units": "plain", "device": "cpu", "processes": 1, "threads": 1
    }  # fmt: skip
    for memory in ("fast", "lean", "min"):
        run = tiny.train_tiny(tmp_path / memory, memory=memory, **options)
        assert run.path.name == plain.path.name, "it is the same run"
        units = run.config["engine"]["units"]
        kernels = {"kernels": VERSION} if "native" in units else {}
        assert run.config["engine"] == {**recorded, "engine": "auto", "memory": memory, "units": units, **kernels}
        assert ("native" in units) == (load().kernels is not None)
        assert losses(run) == pytest.approx(losses(plain), rel=1e-4)
        ours, theirs = tiny.weights(run), tiny.weights(plain)
        for name, tensor in theirs.items():
            torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-4, msg=f"{memory}: {name}")


def cut(monkeypatch, out, at, **options):
    """A run that is stopped by hand before step `at`."""
    step = Trainer.step

    def stops(self, i):
        if i == at:
            raise KeyboardInterrupt
        step(self, i)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stops)
        with pytest.raises(KeyboardInterrupt):
            tiny.train_tiny(out, checkpoint_every=0, **options)


@pytest.mark.parametrize("memory", ["lean", "min"])
def test_a_run_that_is_cut_ends_with_the_same_bytes(tmp_path, monkeypatch, memory):
    options = {**SHORT, "network": DEEPER, "ema": 0.5, "memory": memory}
    whole = tiny.train_tiny(tmp_path / "whole", **options)
    cut(monkeypatch, tmp_path / "cut", 3, **options)
    tiny.assert_same(whole, tiny.train_tiny(tmp_path / "cut", **options))


def test_auto_goes_on_in_the_mode_in_which_the_run_began(tmp_path, monkeypatch, capfd):
    options = {**SHORT, "network": DEEPER}
    whole = tiny.train_tiny(tmp_path / "whole", memory="lean", **options)
    cut(monkeypatch, tmp_path / "cut", 3, memory="lean", **options)
    tiny.assert_same(whole, tiny.train_tiny(tmp_path / "cut", **{**options, "quiet": False}))
    assert "goes on with" not in capfd.readouterr().err


def test_a_run_may_go_on_in_another_mode_and_that_is_told(tmp_path, monkeypatch, capfd):
    options = {**SHORT, "network": DEEPER}
    cut(monkeypatch, tmp_path, 3, memory="lean", **options)
    run = tiny.train_tiny(tmp_path, memory="min", **{**options, "quiet": False})
    told = f"{run.path} goes on with memory min instead of lean: all is the same up to rounding."
    assert told in capfd.readouterr().err
    assert run.config["engine"]["memory"] == "lean"
    assert run.config["resumed"] == [{"step": 3, "memory": "min"}]
    assert run.result is not None


# --- the mode that fits -----------------------------------------------------------------------

SPEC = spec_of("preresnet56", widths=(4, 6, 8))


def choose(monkeypatch, room, first=None, batch=64, side=32, processes=1):
    """The mode for a machine with `room` bytes, and its warnings."""
    warnings = []
    monkeypatch.setattr(memory_estimate, "available", lambda device: room)
    options = {"first": first, "processes": processes, "warn": warnings.append}
    return memory_estimate.choose_mode(SPEC, batch, side, torch.device("cpu"), **options), warnings


def test_the_fastest_mode_that_fits_is_taken(monkeypatch):
    needs = {name: forecast(SPEC, 64, 32, name).added for name in ("fast", "lean", "min")}
    assert choose(monkeypatch, None) == ("fast", [])
    for name, need in needs.items():
        assert choose(monkeypatch, int(need * 1.2)) == (name, [])
    assert choose(monkeypatch, 10 * needs["fast"], first="lean") == ("lean", []), "for the same bits"
    assert choose(monkeypatch, int(needs["min"] * 1.2), first="fast") == ("min", [])
    assert choose(monkeypatch, 2 * int(needs["fast"] * 1.2), processes=2)[0] == "fast"
    assert choose(monkeypatch, 2 * int(needs["fast"] * 0.8), processes=2)[0] != "fast", "half of the memory each"


def test_micro_batches_and_small_images_take_less(monkeypatch):
    need = int(forecast(SPEC, 64, 32, "fast").added)
    assert choose(monkeypatch, need // 2)[0] != "fast"
    assert choose(monkeypatch, need // 2, batch=16)[0] == "fast"
    assert choose(monkeypatch, need // 2, side=16)[0] == "fast"


def test_the_trainer_asks_for_its_parts_of_a_batch_and_its_largest_images(tmp_path, monkeypatch):
    asked = []

    def record(spec, batch, side, device, **_):
        asked.append((batch, side))
        return "fast"

    monkeypatch.setattr(session, "choose_mode", record)
    tiny.train_tiny(tmp_path / "whole", **SHORT)
    tiny.train_tiny(tmp_path / "parts", **SHORT, micro_batch=7)
    tiny.train_tiny(tmp_path / "small", **SHORT, sizes="8@0,16@0.5")
    (batch, side), *others = asked
    assert others == [(7, side), (batch, 16)]


def test_what_fits_nowhere_is_tried_in_the_leanest_mode_and_told(monkeypatch):
    chosen, (warning,) = choose(monkeypatch, 1 << 20)
    assert chosen == "min"
    assert warning.startswith("even memory mode min takes about ")
    assert warning.endswith("MiB and there are 1; a smaller --micro-batch takes less.")


def test_units_that_pytorch_runs_are_named_with_the_reason(tmp_path, monkeypatch, capfd):
    changes = lambda net: PartChanges(net, None, None, ["residual.conv1 has a hook"] * len(net.units))  # noqa: E731
    monkeypatch.setattr(runners, "find_part_changes", changes)
    run = tiny.train_tiny(tmp_path, memory="lean", quiet=False, **SHORT)
    assert run.result is not None
    assert "some units run plain: residual.conv1 has a hook." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "fast"}, "engine"),
        ({"memory": "small"}, "memory"),
        ({"engine": "plain", "memory": "lean"}, "has no memory mode lean; choose engine auto"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path, options, words):
    with pytest.raises(UserError, match=words):
        tiny.train_tiny(tmp_path, **options)
    assert not list(tmp_path.iterdir())


# --- from the command line --------------------------------------------------------------------

COMMAND = ["train", "preresnet20", "--data", "synthetic:256", "--widths", "4,6,8", "--blocks", "2", "--quiet"]
COMMAND += [
    "--length",
    "4it",
    "--batch",
    "32",
    "--warmup",
    "0it",
    "--lr",
    "0.02",
    "--sizes",
    "16@0",
    "--log-every",
    "1",
]


def test_the_command_takes_engine_and_memory(tmp_path, capsys):
    assert main([*COMMAND, "--memory", "min", "--out", str(tmp_path)]) == 0
    (run,) = runs.find(tmp_path)
    assert run.config["engine"]["engine"] == "auto"
    assert run.config["engine"]["memory"] == "min"
    assert main([*COMMAND, "--memory", "none", "--out", str(tmp_path)]) == 2
    assert "memory" in capsys.readouterr().err


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch without gloo")
def test_two_processes_train_in_the_mode_min_as_one_does_in_halves(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "resnets", *COMMAND, "--memory", "min", "--out", str(tmp_path / "two")]
    both = [
        subprocess.Popen(words, env={**os.environ, **where, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE)
        for rank in "01"
    ]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    halves = [*COMMAND, "--engine", "plain", "--micro-batch", "16", "--out", str(tmp_path / "one")]
    assert main(halves) == 0
    (two,), (one,) = runs.find(tmp_path / "two"), runs.find(tmp_path / "one")
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
