"""Sweeps: the plan, runs here and in processes of their own, failures, Ctrl-C, and what the command prints."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from resnets import UserError
from resnets.cli.sweep import add_sweep_options, sweep_command
from resnets.experiments.options import SweepOptions
from resnets.experiments.sweep import SweepWatcher, plan_sweep, sweep
from resnets.recipe import recipe_of
from resnets.report.listing import list_runs

TINY = {"data": "synthetic:64", "recipe": "cifar-quick", "length": "4it", "batch": 16, "network": {"depth": 8}}


# --- the plan ---------------------------------------------------------------------------------


def test_several_fields_give_every_combination_with_every_seed():
    options = SweepOptions(vary=["shortcut=identity,scale:0.5:1", "lr=0.1,0.3"], seeds="0,1")
    trials = plan_sweep("preresnet20", options)
    assert len(trials) == 8
    assert trials[0].variant == (("shortcut", "identity"), ("lr", 0.1))
    assert [str(trial) for trial in trials[-2:]] == [
        "shortcut scale:0.5:1, lr 0.3, seed 0", "shortcut scale:0.5:1, lr 0.3, seed 1",
    ]  # fmt: skip
    same = SweepOptions(vary={"shortcut": ["identity", "scale:0.5:1"], "lr": [0.1, 0.3]}, seeds=(0, 1))
    assert plan_sweep("preresnet20", same) == trials


def test_text_becomes_what_the_field_holds():
    vary = ["widths=16,32,64;8,16,32", "depth=20;32", "nesterov=yes", "batch=64", "milestones=2it;3it"]
    trial = plan_sweep("resnet20", SweepOptions(vary=vary))[0]
    assert dict(trial.variant) == {
        "widths": (16, 32, 64), "depth": 20, "nesterov": True, "batch": 64, "milestones": "2it",
    }  # fmt: skip


def test_another_name_of_a_field_is_the_field():
    trials = plan_sweep("resnet20", SweepOptions(vary=["epochs=1,2"]))
    assert [trial.variant for trial in trials] == [(("length", "1ep"),), (("length", "2ep"),)]


def test_processes_share_the_threads(tmp_path, monkeypatch):
    import torch

    from resnets.experiments import worker

    threads = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    keywords = {**TINY, "out": str(tmp_path), "quiet": True, "seed": 3}
    monkeypatch.setattr(sys, "argv", sys.argv)
    answer = worker.run_job(
        {"model": "preresnet20", "argv": ["resnets", "train"], "imports": [], "jobs": 2, "keywords": keywords}
    )
    assert threads[0] == 2
    (run,) = list_runs(tmp_path)
    assert (answer, run.state) == ({"run": str(run.path)}, "finished")


def test_runs_are_seeds_from_the_first_on():
    assert SweepOptions(runs=3).list_seeds(5) == (5, 6, 7)
    assert SweepOptions().list_seeds(5) == (5,)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vary": ["lrr=1,2"]}, "unknown option 'lrr': did you mean lr"),
        ({"vary": ["engine=plain,auto"]}, "vary takes fields of the network and the recipe, .*, and not engine"),
        ({"vary": ["epochs=1,2", "length=1ep,2ep"]}, "vary has two names of one field"),
        ({"vary": ["nesterov=perhaps"]}, "vary nesterov=perhaps: 'perhaps' is neither true nor false"),
        ({"vary": ["lr"]}, "vary is written as shortcut=identity,conv1x1, not 'lr'"),
        ({"vary": ["lr=0.1,,2"]}, "vary is written as"),
        ({"vary": ["lr=fast"]}, "vary lr=fast: 'fast' is not a number"),
        ({"vary": ["lr=-1"]}, "lr must be at least 0"),
        ({"vary": ["shortcut=none"]}, "unknown shortcut 'none'"),
        ({"vary": ["lr=0.1,0.1"]}, "vary has a value twice"),
        ({"vary": ["lr=0.1", "lr=0.2"]}, "vary has lr twice"),
        ({"vary": {"lr": 0.1}}, "vary needs a list of values for lr"),
        ({"seeds": (0, 0)}, "seeds has 0 twice"),
        ({"seeds": (0, 1), "runs": 2}, "give one of them"),
        ({"jobs": 0}, "jobs must be between 1"),
    ],
)
def test_mistakes_are_refused_before_the_first_run(tmp_path, options, sentence):
    with pytest.raises(UserError, match=sentence):
        sweep("preresnet20", **options, **TINY, out=tmp_path)
    assert not list(tmp_path.iterdir())


# --- the runs ---------------------------------------------------------------------------------


class Log(SweepWatcher):
    def __init__(self):
        self.started, self.ended = [], []

    def start(self, trial, number, count):
        self.started.append((number, count, str(trial)))

    def end(self, trial, number, count):
        self.ended.append((str(trial), trial.failure is None))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_run_does_not_stop_the_others_and_finished_ones_are_skipped(tmp_path, jobs):
    log = Log()
    options = {**TINY, "out": tmp_path, "quiet": True, "jobs": jobs}
    found = sweep("preresnet20", {"lr": [0.3, 1e30]}, seeds=(0, 1), watcher=log, **options)
    assert len(log.started) == len(log.ended) == 4
    assert [str(trial) for trial in found.failures] == ["lr 1e+30, seed 0", "lr 1e+30, seed 1"]
    assert all("not finite in step" in trial.failure for trial in found.failures)
    assert [run.identity.seed for run in found] == [0, 1]
    assert {run.identity.recipe for run in found} == {recipe_of("cifar-quick", length="4it", batch=16, lr=0.3)}
    assert {run.identity.spec.depth for run in found} == {8}
    (summary,) = found.summarize()
    errors = [run.result["test"]["error"] for run in found]
    assert (summary.name, summary.error_on, summary.errors.values) == ("lr 0.3", "test", tuple(errors))

    before = {run.path: (run.result_path.stat().st_mtime_ns, run.metrics_path.read_bytes()) for run in found}
    again = sweep("preresnet20", {"lr": [0.3]}, seeds=(0, 1), **options)
    assert {run.path: (run.result_path.stat().st_mtime_ns, run.metrics_path.read_bytes()) for run in again} == before


def test_what_cannot_be_written_down_is_not_given_to_other_processes(tmp_path):
    from resnets.data.synthetic import synthetic

    with pytest.raises(UserError, match="take jobs=1"):
        sweep("preresnet20", seeds=(0, 1), jobs=2, **{**TINY, "data": synthetic(64)}, out=tmp_path)


SCRIPT = """
import sys
from resnets.experiments.sweep import sweep, ConsoleSweepWatcher
sweep("preresnet20", {"lr": [0.1, 0.2]}, jobs=2, data="synthetic:64", recipe="cifar-quick", length=sys.argv[2],
      batch=16, network={"depth": 8}, out=sys.argv[1], checkpoint_every=0.0, watcher=ConsoleSweepWatcher())
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no signals here")
def test_ctrl_c_stops_all_runs_after_their_step_and_each_goes_on(tmp_path):
    def start(length):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), length]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    process = start("100000it")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        runs = list_runs(tmp_path)
        if len(runs) == 2 and all(run.step > 1 for run in runs):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert said.count("goes on from there") == 2
    stopped = list_runs(tmp_path)
    assert [run.state for run in stopped] == ["stopped", "stopped"]
    for run in stopped:
        assert f"stopped after step {run.step:,};" in said  # the step that `runs` shows

    process = start("100000it")
    try:
        for line in process.stderr:
            if "resuming" in line:
                break
        assert f"at step {stopped[0].step:,} of" in line or f"at step {stopped[1].step:,} of" in line
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


# --- the command ------------------------------------------------------------------------------


def test_the_command_prints_plan_and_table_and_names_what_failed(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_sweep_options(parser)
    words = ["--vary", "shortcut=identity,scale:0.5:1", "--vary", "lr=0.3,1e30", "--seeds", "0,1"]
    options = SweepOptions(**vars(parser.parse_args(words)))
    assert (options.seeds, options.jobs) == ((0, 1), 1)
    code = sweep_command("preresnet20", options, {**TINY, "out": tmp_path, "quiet": True, "seed": 5})
    said = capsys.readouterr()
    assert code == 1
    assert said.out.startswith("8 runs of preresnet20: 4 variants, seeds 0, 1.\n  shortcut identity, lr 0.3\n")
    header, *lines = said.out.partition("\n\n")[2].splitlines()
    assert header.split("  ")[0] == "variant"
    runs = list_runs(tmp_path)
    for line, shortcut in zip(lines, ("identity", "scale:0.5:1"), strict=True):
        errors = [run.test for run in runs if run.state == "finished" and run.differs["shortcut"] == shortcut]
        assert line.startswith(f"shortcut {shortcut}, lr 0.3")
        assert f"{sum(errors) / 2:.2f}" in line
    assert said.err.count("lr 1e+30, seed 1 failed: the loss is not finite") == 2
    assert json.dumps([run.state for run in runs]).count("finished") == 4


def test_several_processes_of_torchrun_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="without torchrun"):
        sweep_command("preresnet20", SweepOptions(runs=2, jobs=2), {})
