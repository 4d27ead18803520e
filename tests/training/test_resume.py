"""A run that is cut at any moment and taken up again ends with the same bytes as one that is not."""

import dataclasses
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from resnets import runs
from resnets.cli import main
from resnets.engine.native.build import Loaded
from resnets.errors import UserError
from resnets.training import checkpoint, session
from resnets.training.loop import Trainer

KILLER = Path(tiny.__file__).with_name("killer.py")

JOBS = {
    "plain": {},
    "dropout shortcut, average, growing images, micro-batches": {
        "model": "resnet20",
        "network": {**tiny.NETWORK, "shortcut": "dropout"},
        "ema": 0.9,
        "sizes": "16@0,24@0.4,32@0.7",
        "micro_batch": 20,
        "schedule": "onecycle",
        "nesterov": True,
        "label_smoothing": 0.1,
        "flip": "alternate",
        "validation": 40,
        "precise_bn": 100,
        "curve": True,
        "every": 4,
    },
    "gates, scaled gradients, whitened patches": {
        "model": "resnet20",
        "network": {**tiny.NETWORK, "shortcut": "exclusive_gate"},
        "precision": "fp16",
        "validation": 40,
        "whiten": True,
    },
    "a chain with companions, gates, dropout and another momentum": {
        "model": "nin",
        "network": {
            "rows": ["a: conv:8:3:s2 aux:1(linear:K) relu drop:0.5:unscaled", "b: highway:3:-2 drop:0.2", "linear:K"],
            "input_size": 16,
        },
        "normalize": "gcn",
        "loss": "hinge",
        "aux_length": "9it",
        "lr": 0.01,
        "momentum": 0.5,
        "momentum_ramp": "0.9@12it",
        "max_norm": "1",
        "init": "lsuv",
    },
    "Ctrl-C": {"checkpoint_every": 3600},
}


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """For each job the preserve_state run, the disturbed one, and what is told of its kills; and what was said."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    jobs = [
        {
            "out": str(tmp_path_factory.mktemp("job")),
            "kills": 2 if name == "Ctrl-C" else 6,
            "signal": "SIGINT" if name == "Ctrl-C" else "SIGKILL",
            "seed": seed,
            "options": {**tiny.OPTIONS, "length": "18it", "milestones": "15it", "checkpoint_every": 0, **options},
        }
        for seed, (name, options) in enumerate(JOBS.items())
    ]
    done = subprocess.run(
        [sys.executable, KILLER, json.dumps(jobs)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = dict(zip(JOBS, json.loads(done.stdout), strict=True))
    return told, done.stderr


def both(told):
    (whole,), (cut,) = (runs.find(Path(told[which])) for which in ("whole", "killed"))
    return whole, cut


@pytest.mark.parametrize("name", [name for name in JOBS if name != "Ctrl-C"])
def test_a_run_killed_at_random_moments_ends_with_the_same_bytes(disturbed, name):
    told = disturbed[0][name]
    assert len(told["struck"]) >= 6
    assert told["codes"].count(-signal.SIGKILL) == len(told["struck"])
    assert told["codes"][-1] == 0
    assert len(set(told["struck"])) > 3, "the kills fell on different steps"
    whole, cut = both(told)
    tiny.assert_same(whole, cut)
    assert not list(cut.path.rglob("*.part"))


def test_ctrl_c_ends_the_step_keeps_it_and_exits_with_130(disturbed):
    told, said = disturbed[0]["Ctrl-C"], disturbed[1]
    assert len(told["struck"]) >= 2
    assert told["codes"].count(130) == len(told["struck"])
    assert told["codes"][-1] == 0
    assert "stopping after this step; once more to stop at once." in said
    tiny.assert_same(*both(told))


# --- the same from inside, step by step -------------------------------------------------------


def interrupted(monkeypatch, at, what):
    """Make step `at` do `what` before it trains."""
    step = Trainer.step

    def disturbed(self, i):
        if i == at:
            what()
        step(self, i)

    monkeypatch.setattr(Trainer, "step", disturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_of_the_very_step(tmp_path, monkeypatch, capfd, number):
    with monkeypatch.context() as patch:
        interrupted(patch, 7, lambda: os.kill(os.getpid(), number))
        with pytest.raises(KeyboardInterrupt):
            tiny.train_tiny(tmp_path / "cut")
    (run,) = runs.find(tmp_path / "cut")
    assert checkpoint.newest(run.checkpoints).step == 8
    assert run.result is None
    assert "once more to stop at once" in capfd.readouterr().err
    handler = signal.getsignal(number)
    assert handler is signal.default_int_handler if number == signal.SIGINT else handler == signal.SIG_DFL
    tiny.assert_same(tiny.train_tiny(tmp_path / "cut"), tiny.train_tiny(tmp_path / "whole"))


def test_a_second_signal_stops_at_once(tmp_path, monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    interrupted(monkeypatch, 7, twice)
    with pytest.raises(KeyboardInterrupt):
        tiny.train_tiny(tmp_path)
    (run,) = runs.find(tmp_path)
    assert checkpoint.newest(run.checkpoints).step == 0


def test_the_command_exits_with_130_and_resumes(tmp_path, monkeypatch, capsys):
    words = ["train", "preresnet20", "--data", "synthetic:256", "--widths", "4,8,8", "--blocks", "1", "--length", "6it"]
    words += ["--batch", "32", "--warmup", "0it", "--quiet", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        interrupted(patch, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
        assert main(words) == 130
    (run,) = runs.find(tmp_path)
    assert checkpoint.newest(run.checkpoints).step == 4
    assert main(words) == 0
    assert "6 iterations: test error" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["_finish", "weights", "result"])
def test_a_run_cut_while_it_finishes_is_finished_with_the_same_metrics(tmp_path, monkeypatch, place):
    """Validated after the last epoch and once more with precise BN: no line is lost and none comes twice."""
    options = {"validation": 40, "precise_bn": 100, "curve": True}
    whole = tiny.train_tiny(tmp_path / "whole", **options)

    class CutError(Exception):
        pass

    def cut(*args, **kwargs):
        raise CutError

    with monkeypatch.context() as patch:
        if place == "_finish":
            patch.setattr(session.Session, "_finish", cut)
        elif place == "weights":
            patch.setattr("resnets.training.classification.save_weights", cut)
        else:
            write = session.write_atomically
            patch.setattr(session, "write_atomically", lambda p, d: (cut if p.name == "result.json" else write)(p, d))
        with pytest.raises(CutError):
            tiny.train_tiny(tmp_path / "cut", **options)
    tiny.assert_same(whole, tiny.train_tiny(tmp_path / "cut", **options))
    kinds = [line["kind"] for line in whole.metrics() if line["step"] == 12]
    assert kinds == ["train", "epoch", "validation", "test", "validation", "test"]


def test_without_precise_bn_the_last_scores_are_not_taken_twice(tmp_path, monkeypatch):
    whole = tiny.train_tiny(tmp_path / "whole", validation=40)
    with monkeypatch.context() as patch:
        patch.setattr("resnets.training.classification.save_weights", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tiny.train_tiny(tmp_path / "cut", validation=40)
    tiny.assert_same(whole, tiny.train_tiny(tmp_path / "cut", validation=40))
    assert [line["kind"] for line in whole.metrics() if line["step"] == 12] == ["train", "epoch", "validation", "test"]


def test_a_finished_run_is_returned_without_a_step(tmp_path, monkeypatch):
    run = tiny.train_tiny(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    monkeypatch.setattr(Trainer, "__init__", lambda *args, **kwargs: pytest.fail("it was trained again"))
    again = tiny.train_tiny(tmp_path)
    assert again.path == run.path
    assert again.result == run.result is not None
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()} == before


# --- damage -----------------------------------------------------------------------------------


@pytest.fixture
def half(tmp_path, monkeypatch):
    """A run cut after step 8, with the checkpoints of steps 7 and 8."""
    with monkeypatch.context() as patch:
        interrupted(patch, 7, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            tiny.train_tiny(tmp_path / "cut", checkpoint_every=0)
    (run,) = runs.find(tmp_path / "cut")
    assert [int(path.name.split("-")[1]) for path in checkpoint.list_checkpoints(run.checkpoints)] == [8, 7]
    return run


DAMAGES = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "filled with zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_the_end_is_the_same(tmp_path, half, capfd, damage):
    newest = checkpoint.list_checkpoints(half.checkpoints)[0]
    DAMAGES[damage](newest)
    run = tiny.train_tiny(tmp_path / "cut", checkpoint_every=0)
    warning = f"resnets: warning: {newest} is damaged (its checksum does not match); using the checkpoint before it."
    assert capfd.readouterr().err.count(warning) == (0 if damage == "deleted" else 1)
    assert run.path == half.path
    tiny.assert_same(run, tiny.train_tiny(tmp_path / "whole", checkpoint_every=0))


@pytest.mark.parametrize(
    ("damage", "words"),
    [("filled with zeros", "none of its 2 checkpoints is whole"), ("deleted", "it has no checkpoint")],
)
def test_a_run_without_a_whole_checkpoint_says_what_to_do(tmp_path, half, damage, words):
    for path in checkpoint.list_checkpoints(half.checkpoints):
        DAMAGES[damage](path)
    with pytest.raises(UserError) as told:
        tiny.train_tiny(tmp_path / "cut")
    assert str(told.value) == f"the run in {half.path} cannot go on: {words}; delete the folder to start over."


def test_what_a_killed_writer_left_is_removed(tmp_path, half):
    for path in (half.path / ".result.json.0a1b.part", half.checkpoints / ".step-00000009.0a1b.part"):
        path.write_bytes(b"half of it")
    tiny.train_tiny(tmp_path / "cut")
    assert not list(half.path.rglob("*.part"))


def cut_line(path, number):
    """Cut a file in the middle of its line `number`."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: number - 1]) + lines[number - 1][:20])


def change_line(path, number, old, new):
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    path.write_bytes(b"".join(lines))


METRICS_DAMAGES = {
    "cut inside a line": (lambda path: cut_line(path, 2), "{} has 1 whole lines and should have {}"),
    "a line that is no JSON": (lambda path: change_line(path, 1, b"{", b"x"), "line 1 of {} is damaged"),
    "a line of zeros": (lambda path: change_line(path, 2, b"kind", bytes(4)), "line 2 of {} is damaged"),
    "another number": (
        lambda path: change_line(path, 1, b'"epoch": 0', b'"epoch": 1'),
        "the first {1} lines of {0} are not those that were written",
    ),
    "missing": (lambda path: path.unlink(), "{} has 0 whole lines and should have {}"),
}


@pytest.mark.parametrize("damage", METRICS_DAMAGES)
def test_damaged_metrics_before_every_checkpoint_are_refused(tmp_path, half, damage):
    do, words = METRICS_DAMAGES[damage]
    do(half.metrics_path)
    before = {path: path.read_bytes() for path in half.path.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as told:
        tiny.train_tiny(tmp_path / "cut", checkpoint_every=0)
    fault = words.format(half.metrics_path, checkpoint.newest(half.checkpoints).state["lines"])
    assert str(told.value) == (
        f"the run in {half.path} cannot go on: {fault}, and no older checkpoint is of use; restore the file or delete "
        "the folder to start over."
    )
    assert {path: path.read_bytes() for path in half.path.rglob("*") if path.is_file()} == before


def test_metrics_cut_before_the_last_checkpoint_are_made_again_from_the_one_before(tmp_path, half, monkeypatch, capfd):
    """Logged every step, the line of step 8 stands after the checkpoint of step 7 and before that of step 8."""
    options = {"checkpoint_every": 0, "log_every": 1}
    with monkeypatch.context() as patch:
        interrupted(patch, 7, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            tiny.train_tiny(tmp_path / "each", **options)
    (run,) = runs.find(tmp_path / "each")
    lines = checkpoint.newest(run.checkpoints).state["lines"]
    cut_line(run.metrics_path, lines)
    tiny.assert_same(tiny.train_tiny(tmp_path / "each", **options), tiny.train_tiny(tmp_path / "whole", **options))
    fault = f"{run.metrics_path} has {lines - 1} whole lines and should have {lines}"
    assert f"warning: {fault}; using the checkpoint before step 8." in capfd.readouterr().err


def test_checkpoints_without_a_hash_of_the_metrics_are_still_read(tmp_path, half):
    old_form(half)
    tiny.assert_same(tiny.train_tiny(tmp_path / "cut"), tiny.train_tiny(tmp_path / "whole"))


def old_form(run):
    """Make the newest checkpoint and the config such as older versions wrote."""
    newest = checkpoint.newest(run.checkpoints)
    for path in checkpoint.list_checkpoints(run.checkpoints):
        path.unlink()
    state = {key: newest.state[key] for key in ("lines", "scores")}
    checkpoint.save(run.checkpoints, checkpoint.Checkpoint(newest.step, newest.tensors, state))
    config = {key: value for key, value in run.config.items() if key != "statistics"}
    config["engine"] = {key: config["engine"][key] for key in ("engine", "memory")}
    run.config_path.write_text(json.dumps(config))


def test_an_older_run_goes_on_and_its_unknown_processes_are_told(tmp_path, half, capfd):
    old_form(half)
    tiny.train_tiny(tmp_path / "cut", quiet=False)
    assert f"{half.path} does not say how many processes began it; it goes on with 1" in capfd.readouterr().err


def test_what_changes_rounding_is_told_in_one_line_and_recorded(tmp_path, half, capfd):
    config = half.config
    config["engine"]["threads"], config["versions"]["torch"] = 7, "2.0.1"
    half.config_path.write_text(json.dumps(config))
    run = tiny.train_tiny(tmp_path / "cut", quiet=False)
    now = importlib.metadata.version("torch")
    changes = f"threads 1 instead of 7, torch {now} instead of 2.0.1"
    told = f"resnets: {half.path} goes on with {changes}: all is the same up to rounding.\n"
    assert capfd.readouterr().err.count(told) == 1
    assert run.config["resumed"] == [{"step": 8, "threads": 1, "torch": now}]


def test_kernels_that_are_switched_off_are_told(tmp_path, half, capfd, monkeypatch):
    if "native" not in half.config["engine"]["units"]:
        pytest.skip("no kernels here")
    monkeypatch.setattr("resnets.engine.runners.load", lambda: Loaded(None, "switched off"))
    tiny.train_tiny(tmp_path / "cut", quiet=False)
    assert "goes on with units direct instead of" in capfd.readouterr().err


# --- a folder that holds another run ----------------------------------------------------------


@pytest.mark.parametrize("finished", [False, True])
def test_a_config_of_another_run_is_refused_with_the_field_that_differs(tmp_path, half, finished):
    if finished:
        tiny.train_tiny(tmp_path / "cut")
    for change, words in (
        ({"seed": 3}, "seed 3 and this command 0"),
        ({"recipe": {**half.config["run"]["recipe"], "lr": 0.2}}, "recipe.lr 0.2 and this command 0.1"),
        ({"weights": "0a1b"}, "weights 0a1b and this command missing"),
    ):
        config = half.config_path.read_bytes()
        changed = json.loads(config)
        changed["run"] |= change
        half.config_path.write_text(json.dumps(changed))
        with pytest.raises(UserError) as told:
            tiny.train_tiny(tmp_path / "cut")
        assert str(told.value) == (
            f"{half.config_path} says {words}: the folder holds another run or the file was changed; restore the file, "
            f"move {half.path} away or choose another --out."
        )
        half.config_path.write_bytes(config)


def test_a_checkpoint_of_another_run_is_refused(tmp_path, half):
    other = tiny.train_tiny(tmp_path / "other", seed=1)
    for path in checkpoint.list_checkpoints(half.checkpoints):
        path.unlink()
    for path in checkpoint.list_checkpoints(other.checkpoints):
        shutil.copy(path, half.checkpoints)
    with pytest.raises(UserError, match=r"cannot go on: the checkpoint of step 0 is of another run, and no older"):
        tiny.train_tiny(tmp_path / "cut")


def test_other_pixels_are_another_run(tmp_path, images):
    one = tiny.train_tiny(tmp_path, data=images, length="1it")
    pixels = 255 - images.train_images
    other = tiny.train_tiny(tmp_path, data=dataclasses.replace(images, train_images=pixels), length="1it")
    assert other.path != one.path
    assert tiny.train_tiny(tmp_path, data=images, length="1it").path == one.path


@pytest.mark.parametrize("finished", [False, True])
def test_another_mean_of_the_pixels_is_refused(tmp_path, half, images, finished):
    if finished:
        tiny.train_tiny(tmp_path / "cut")
    with pytest.raises(UserError, match=r"was trained with another mean or deviation of the pixels than these images"):
        tiny.train_tiny(tmp_path / "cut", data=dataclasses.replace(images, mean=(0.1, 0.2, 0.3)))


def test_an_older_half_of_a_run_with_held_out_images_in_its_mean_image_is_refused(tmp_path, capfd):
    options = {"normalize": "pixel", "validation": 40, "length": "1it"}
    run = tiny.train_tiny(tmp_path, **options)
    config = {key: value for key, value in run.config.items() if key != "statistics"}
    run.config_path.write_text(json.dumps(config))
    tiny.train_tiny(tmp_path, **{**options, "quiet": False})
    assert "is finished; its mean image was taken over held-out images too, as older" in capfd.readouterr().err
    run.result_path.unlink()
    with pytest.raises(UserError, match=r"taken over held-out images too, as older versions did, and must not change"):
        tiny.train_tiny(tmp_path, **options)


def test_a_run_that_another_process_finished_meanwhile_is_not_trained(tmp_path, half, monkeypatch):
    """The result comes after this process has looked for it and before it holds the lock."""
    whole = tiny.train_tiny(tmp_path / "whole")
    lock = runs.Run.lock

    def late(self):
        shutil.copy(whole.result_path, self.result_path)
        return lock(self)

    monkeypatch.setattr(runs.Run, "lock", late)
    monkeypatch.setattr(Trainer, "__init__", lambda *args, **kwargs: pytest.fail("it was trained again"))
    assert tiny.train_tiny(tmp_path / "cut").result == whole.result


def test_a_torn_line_of_metrics_is_written_again_whole(tmp_path, half):
    with half.metrics_path.open("a") as file:
        file.write('{"kind": "train", "step": 9, "lo')
    tiny.assert_same(tiny.train_tiny(tmp_path / "cut"), tiny.train_tiny(tmp_path / "whole"))


def test_parts_left_in_a_run_at_its_last_step_are_removed(tmp_path):
    run = tiny.train_tiny(tmp_path)
    run.result_path.unlink()  # as if killed before it was written; the last checkpoint stays
    left = run.checkpoints / ".step-00000009.0a1b.part"
    left.write_bytes(b"half")
    tiny.train_tiny(tmp_path)
    assert run.result is not None
    assert not left.exists()
