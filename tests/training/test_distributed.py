"""Two gloo processes against one, and a worker that is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
import torch
import torch.distributed as dist

from resnets import runs
from resnets.cli import main
from resnets.errors import UserError
from resnets.recipe import recipe_of
from resnets.training import checkpoint, distributed, resume
from resnets.training.distributed import Workers
from resnets.training.loop import Trainer, parts_of
from resnets.zoo import spec_of

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch without gloo")

RECIPE = {"length": "16it", "batch": "48", "warmup": "0it", "milestones": "", "lr": "0.02", "validation": "40"}
RECIPE |= {"sizes": "16@0", "ema": "0.5"}
COMMAND = ["train", "preresnet20", "--data", "synthetic:256", "--widths", "4,8,8", "--blocks", "1", "--quiet"]
COMMAND += ["--curve", "--log-every", "1", "--every", "8", "--checkpoint-every", "0"]
COMMAND += [word for field, value in RECIPE.items() for word in (f"--{field}", value)]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]


def alone(out, **changes):
    """The same in this process."""
    recipe = {**RECIPE, "batch": 48, "lr": 0.02, "validation": 40, "ema": 0.5}
    return tiny.train_tiny(out, **{**recipe, "curve": True, "log_every": 1, "every": 8, **changes})


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The run of two processes, seeds 0 and 1 one after the other."""
    out = tmp_path_factory.mktemp("two")
    said = tiny.two_processes([*COMMAND, "--runs", "2", "--out", str(out)])
    assert "2 runs" in said[0][0]
    assert not said[1][0], "rank 1 is silent"
    first, second = runs.find(out)
    assert (first.identity.seed, second.identity.seed) == (0, 1)
    return first


def losses(run):
    return [line["loss"] for line in run.metrics() if line["kind"] == "train"]


def test_two_processes_train_as_one_that_takes_the_batch_in_two_halves(two, tmp_path):
    """Every net here has BN, and BN couples the images of a device. One process with micro-batches of half a batch
    has the same groups, so losses, gradients and weights are those of two processes up to the order of sums. Only the
    running statistics differ: one process sees both halves, of two the first one's are kept.
    """
    one = alone(tmp_path, micro_batch=24)
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    assert len(losses(two)) == 16
    errors = [[line["error"] for line in run.metrics() if line["kind"] == "train"] for run in (two, one)]
    assert errors[0] == pytest.approx(errors[1], abs=100 / 48 + 1e-6)  # one image at a tie may fall the other way
    ours, theirs = tiny.weights(two), tiny.weights(one)
    for name, tensor in theirs.items():
        if "running" not in name and "tracked" not in name:
            torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-3)


def test_the_first_process_measures_the_signal(two, tmp_path):
    ours, theirs = ([line for line in r.metrics() if line["kind"] == "signal"] for r in (two, alone(tmp_path)))
    assert [line["step"] for line in ours] == [0, 8, 16]
    assert ours[0] == theirs[0]


def test_bn_over_the_whole_batch_gives_another_curve_that_begins_close(two, tmp_path):
    """One process normalises over 48 images, each of two over its 24: another function, but of the same weights at
    the first step, on the same images. The losses differ by more than rounding, and by little.
    """
    one = alone(tmp_path)
    assert losses(two)[0] == pytest.approx(losses(one)[0], rel=0.05)
    assert losses(two)[0] != pytest.approx(losses(one)[0], rel=1e-6)
    assert losses(two)[-1] == pytest.approx(losses(one)[-1], rel=0.15)


def test_the_kept_network_has_the_errors_that_were_told(two):
    """Each process tests half of the images, both with the same network: the one in the file."""
    import resnets
    from resnets.data.augment import Normalize
    from resnets.data.synthetic import synthetic
    from resnets.evaluation.score import score_images as evaluate

    data = synthetic(256)
    images, labels = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
    score = evaluate(resnets.load(two.weights), images, labels, Normalize.of(data))
    told = two.result["test"]
    assert (told["images"], told["wrong"]) == (score.images, score.wrong)
    assert told["loss"] == pytest.approx(score.loss, rel=1e-6)


@pytest.mark.skipif(not shutil.which("pgrep"), reason="finds the workers with pgrep")
def test_a_killed_worker_is_started_again_and_the_run_ends_with_the_same_bytes(two, tmp_path):
    """torchrun restarts both workers, and they go on from the last checkpoint."""
    log = tmp_path / "log"
    with log.open("w") as file:
        agent = subprocess.Popen(
            [sys.executable, "-m", *TORCHRUN, "-m", "resnets", *COMMAND, "--out", str(tmp_path / "runs")],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=file,
            stderr=file,
        )
    try:
        run = wait_for_step(tmp_path / "runs", 4, agent)
        workers = subprocess.run(["pgrep", "-P", str(agent.pid)], capture_output=True, text=True, check=True).stdout
        os.kill(max(map(int, workers.split())), signal.SIGKILL)
        assert agent.wait(120) == 0, log.read_text()
    finally:
        agent.terminate()  # and it ends its workers
        agent.wait()
    assert "failed (exitcode: -9)" in log.read_text()
    tiny.assert_same(two, run)


def wait_for_step(out, step, agent):
    """The run, once it has a checkpoint of that step, and before it is done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and agent.poll() is None:
        for run in runs.find(out) if out.exists() else []:
            if any(int(path.name.split("-")[1]) >= step for path in checkpoint.list_checkpoints(run.checkpoints)):
                assert run.result is None, "too fast to be killed"
                return run
        time.sleep(0.005)
    raise AssertionError("it did not begin to train")


# --- another number of processes than the run began with --------------------------------------

DROPOUT = ["train", "resnet20", "--shortcut", "dropout:0.5", *COMMAND[2:], "--batch", "47"]  # shares of 23 and 24


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run with a dropout shortcut that two processes began and left after step 6."""
    out = tmp_path_factory.mktemp("half")
    tiny.two_processes([*DROPOUT, "--out", str(out)], stop_at=6)
    (run,) = runs.find(out)
    assert checkpoint.newest(run.checkpoints).step == 6
    assert run.config["engine"]["processes"] == 2
    return run


def test_one_process_goes_on_with_what_two_began(half, tmp_path, capfd):
    """BN sees the same groups, the dropout masks are the same, and the statistics are those of the first share."""
    tiny.two_processes([*DROPOUT, "--out", str(tmp_path / "whole")])
    (whole,) = runs.find(tmp_path / "whole")
    path = shutil.copytree(half.path, tmp_path / "cut" / half.path.name)
    loud = [word for word in DROPOUT if word != "--quiet"]
    assert main([*loud, "--out", str(path.parent)]) == 0
    told = f"{path} goes on with processes 1 instead of 2: BN sees the same images together, and all is the same up to"
    assert told in capfd.readouterr().err
    run = runs.Run(path)
    assert run.config["resumed"] == [{"step": 6, "processes": 1}]
    assert losses(run) == pytest.approx(losses(whole), rel=1e-4)
    ours, theirs = tiny.weights(run), tiny.weights(whole)
    assert any("running" in name for name in theirs)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-3, msg=name)
    tracked = next(tensor for name, tensor in ours.items() if "tracked" in name)
    assert tracked == 16


def begun(words, out, monkeypatch):
    """A run that one process left before its first step."""

    def stop(self, i):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stop)
        assert main([*words, "--out", str(out)]) == 130
    (run,) = runs.find(out)
    return run


def test_two_processes_and_one_go_on_alike_with_what_three_began(tmp_path, monkeypatch):
    """Before the first step a run of three processes differs from one of a single one in what its config says alone."""
    run = begun(DROPOUT, tmp_path / "one", monkeypatch)
    config = run.config
    config["engine"]["processes"] = 3
    run.config_path.write_text(json.dumps(config))
    other = runs.Run(shutil.copytree(run.path, tmp_path / "two" / run.path.name))
    assert main([*DROPOUT, "--out", str(tmp_path / "one")]) == 0
    tiny.two_processes([*DROPOUT, "--out", str(tmp_path / "two")])
    assert losses(other) == pytest.approx(losses(run), rel=1e-4)
    ours, theirs = tiny.weights(other), tiny.weights(run)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-3, msg=name)


def test_two_processes_do_not_go_on_with_what_one_began(tmp_path, monkeypatch):
    words = [*COMMAND, "--out", str(tmp_path)]
    run = begun(COMMAND, tmp_path, monkeypatch)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    said = tiny.two_processes(words, code=2)
    expected = (
        f"resnets: {run.path} began with 1 process and cannot go on with 2, as BN would see other images together: "
        "start at most 1, or choose another --out to start a new run.\n"
    )
    assert [err for _, err in said] == [expected, expected]
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_finished_run_of_two_processes_says_so_to_one(two, capfd):
    loud = [word for word in COMMAND if word != "--quiet"]
    assert main([*loud, "--out", str(two.path.parent)]) == 0
    told = f"{two.path} is finished; it was trained by 2 processes, each with its share of a batch."
    assert told in capfd.readouterr().err


def test_a_run_that_is_being_trained_is_refused_by_every_process(tmp_path, two):
    path = shutil.copytree(two.path, tmp_path / two.path.name)
    (path / "result.json").unlink()
    with runs.Run(path).lock():
        said = tiny.two_processes([*COMMAND, "--out", str(tmp_path)], code=2)
    for _, err in said:
        assert err == f"resnets: another process is training in {path}; wait for it or choose another --out.\n"


@pytest.mark.parametrize("micro_batch", [0, 5, 100])
@pytest.mark.parametrize(("batch", "began", "now"), [(48, 2, 1), (47, 2, 1), (48, 4, 2), (49, 3, 2), (64, 8, 3)])
def test_fewer_processes_have_the_parts_of_more(batch, began, now, micro_batch):
    recipe = recipe_of("cifar-paper", batch=batch, micro_batch=micro_batch)
    before = [part for rank in range(began) for part in parts_of(recipe, began, [rank])]
    after = [list(parts_of(recipe, began, Workers(rank, now).ranks(began))) for rank in range(now)]
    assert [part for parts in after for part in parts] == before
    assert sum(part.size for part in before) == batch
    assert after[0][0].rank == 0, "whose statistics are kept"
    assert all(after)


def resolved(began, now, shortcut="identity", **changes):
    config = {"engine": {"processes": began} if began else {"engine": "auto"}}
    spec = spec_of("resnet20", shortcut=shortcut)
    return resume.resolve_processes(runs.Run(Path("run")), config, now, spec, recipe_of("cifar-paper", **changes))


def test_how_many_shares_a_batch_has_is_decided_when_a_run_begins():
    assert resolved(2, 2) == 2
    assert resolved(4, 2) == 4
    assert resolved(4, 1, micro_batch=16) == 4
    assert resolved(None, 2) == 2, "an older run does not say"
    assert resolved(4, 2, sync_bn=True) == 2, "BN sees whole batches"
    assert resolved(1, 2, sync_bn=True) == 2
    for began, now, words, changes in (
        (1, 2, "start at most 1", {}),
        (2, 4, "start at most 2", {"micro_batch": 8}),
        (4, 2, "start exactly 4", {"sync_bn": True, "micro_batch": 8}),
        (4, 2, "start exactly 4", {"sync_bn": True, "shortcut": "dropout"}),
    ):
        with pytest.raises(UserError, match=words):
            resolved(began, now, **changes)


# --- one process is a special case ------------------------------------------------------------


def test_alone_nothing_is_sent():
    workers, tensor = Workers(), torch.ones(3)
    assert workers.is_main
    assert workers.total(1.0, 2.5) == [1.0, 2.5]
    assert workers.broadcast("word") == "word"
    assert workers.sum_over(tensor) is tensor
    workers.sync([tensor])
    assert tensor.tolist() == [1, 1, 1]
    assert workers.share(7) == slice(0, 7)


@pytest.mark.parametrize(("count", "world"), [(10, 3), (2, 5), (0, 2), (128, 8)])
def test_shares_are_contiguous_and_equal_to_within_one(count, world):
    shares = [Workers(rank, world).share(count) for rank in range(world)]
    assert [i for share in shares for i in range(count)[share]] == list(range(count))
    sizes = [share.stop - share.start for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_without_torchrun_a_process_is_alone(monkeypatch):
    for name in ("WORLD_SIZE", "LOCAL_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    workers, device = distributed.start(torch.device("cpu"))
    assert (workers, device) == (Workers(0, 1), torch.device("cpu"))
    assert not dist.is_initialized()


def test_synchronised_bn_is_refused_on_cpus(images):
    recipe = recipe_of("cifar-paper", sync_bn=True, batch=48)
    with pytest.raises(UserError, match=r"sync_bn works on GPUs only; leave it off on CPUs\."):
        tiny.trainer_of(spec_of("preresnet20", **tiny.NETWORK), images, recipe, 0, workers=Workers(0, 2))


# --- the end of a process ---------------------------------------------------------------------

ENDING = """
import torch
from torch.nn.parallel import DistributedDataParallel

from resnets.training import distributed

workers, _ = distributed.start(torch.device("cpu"))
DistributedDataParallel(torch.nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()
workers.total(1.0)
print(len(distributed._read_gloo_states()))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux lists the threads of a process")
def test_a_process_finds_the_threads_that_it_waits_for(tmp_path):
    script = tmp_path / "ending.py"
    script.write_text(ENDING)
    assert [int(out) > 0 for out, _ in tiny.two_processes([], script=script)] == [True, True]


def test_a_process_ends_when_gloo_is_idle_twice_in_a_row(monkeypatch):
    seen = iter([["R", "S"], ["S", "S"], ["S", "R"], ["S", "S"], ["S", "S"], ["R"]])
    monkeypatch.setattr(distributed, "_read_gloo_states", lambda: next(seen))
    distributed._wait_for_gloo()
    assert list(seen) == [["R"]]


def test_a_process_does_not_wait_for_ever_for_gloo(monkeypatch):
    monkeypatch.setattr(distributed, "_read_gloo_states", lambda: ["R"])
    distributed._wait_for_gloo(longest=0.02)
