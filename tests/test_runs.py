"""A run's name, folder, metrics, lock and provenance."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from resnets import runs
from resnets.errors import UserError
from resnets.recipe import LATER, RECIPES, Recipe, recipe_of
from resnets.runs import Run, RunKey, Summary, provenance, provenance_to_publish, without_folders
from resnets.zoo import NETWORKS, spec_of

IDENTITY = RunKey(spec_of("preresnet20"), "cifar10", "0123abcd", RECIPES["cifar-paper"], 0)


def python(code, **environment):
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- names ------------------------------------------------------------------------------------


def test_a_slug_says_what_it_is_and_ends_in_a_hash():
    assert re.fullmatch(r"preresnet20-cifar10-cifar-paper-s0-[0-9a-f]{8}", IDENTITY.slug)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_a_slug_is_the_same_in_every_process(hash_seed):
    code = (
        "from resnets.runs import *; from resnets.zoo import spec_of\n"
        "print(RunKey(spec_of('preresnet20'), 'cifar10', '0123abcd', RECIPES['cifar-paper'], 0).slug)"
    )
    assert python(code, PYTHONHASHSEED=hash_seed) == IDENTITY.slug


def changed(field):
    """Another valid value of a recipe's field."""
    value = getattr(Recipe("x"), field.name)
    others = {"schedule": "cosine", "decay_on": "weights", "flip": "none", "normalize": "pixel", "precision": "bf16"}
    others |= {"optimizer": "muon", "augment": "scale", "optimizer_options": "eps=1e-6", "shorter_side": "224-480"}
    others |= {"length": "10ep", "milestones": "", "warmup": "0it", "sizes": "16@0", "name": "mine"}
    others |= {"loss": "hinge", "init": "xavier", "max_norm": "0.9", "momentum_ramp": "0.65@2ep", "aux_length": "3it"}
    others |= {"hint": "a:b", "distill": "4-1@5ep"}
    others |= {"detect_side": "480,600", "anchor_sizes": "auto"}
    if field.name in others:
        return others[field.name]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2 or 0.5


def test_everything_that_makes_a_run_different_changes_the_slug():
    others = [
        dataclasses.replace(IDENTITY, seed=1),
        dataclasses.replace(IDENTITY, data="cifar100"),
        dataclasses.replace(IDENTITY, digest="0123abce"),
    ]
    others += [dataclasses.replace(IDENTITY, network=spec) for name, spec in NETWORKS.items() if name != "preresnet20"]
    network = {"shortcut": "dropout:0.4", "stem_activation": False, "bn_momentum": 0.2, "num_classes": 100}
    others += [dataclasses.replace(IDENTITY, network=spec_of("preresnet20", **{k: v})) for k, v in network.items()]
    for field in dataclasses.fields(Recipe):
        changes = {"optimizer": {"nesterov": True}, "optimizer_options": {"optimizer": "AdamW"}}.get(field.name, {})
        recipe = dataclasses.replace(IDENTITY.recipe, **changes, **{field.name: changed(field)})
        others.append(dataclasses.replace(IDENTITY, recipe=recipe))
    slugs = {IDENTITY.slug, *(other.slug for other in others)}
    assert len(slugs) == 1 + len(others)


def test_fields_that_came_later_do_not_rename_older_runs():
    assert not set(LATER) & set(IDENTITY.to_dict()["recipe"])
    later = dataclasses.replace(IDENTITY, recipe=dataclasses.replace(IDENTITY.recipe, freeze=1), weights="ab")
    assert RunKey.from_dict(json.loads(json.dumps(later.to_dict()))) == later


def test_a_path_gives_its_end_to_the_name():
    assert dataclasses.replace(IDENTITY, data="imagenet:/far/away/pets/").slug.startswith(
        "preresnet20-pets-cifar-paper"
    )


def test_equal_runs_have_equal_slugs_however_they_were_written():
    again = RunKey(
        spec_of("preresnet20", depth=20, shortcut="identity"),
        "cifar10",
        "0123abcd",
        recipe_of("cifar-paper", lr=0.1),
        0,
    )
    assert again == IDENTITY
    assert again.slug == IDENTITY.slug
    integer, floating = (dataclasses.replace(IDENTITY, recipe=recipe_of("cifar-paper", lr=lr)) for lr in (1, 1.0))
    assert integer.slug == floating.slug


@pytest.mark.parametrize("recipe", [*RECIPES.values(), Recipe("mine", lr=0.3, sizes="16@0")], ids=lambda r: r.name)
def test_an_identity_survives_json(recipe):
    identity = dataclasses.replace(IDENTITY, recipe=recipe, network=spec_of("resnet164", shortcut="scale:0.5:0.5"))
    assert RunKey.from_dict(json.loads(json.dumps(identity.to_dict()))) == identity


@pytest.mark.parametrize("data", ["synthetic:256", "../../etc", "a b/c", "ä"])
def test_a_slug_is_one_plain_word_for_the_file_system(data):
    slug = dataclasses.replace(IDENTITY, data=data).slug
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", slug)
    assert not slug.startswith(".")


# --- the folder -------------------------------------------------------------------------------

MEASURED = {"loss": 0.1 + 0.2, "error": 12.5}
LINES = [
    {"kind": "train", "step": 50, **MEASURED, "images_per_second": 99.5},
    {"kind": "epoch", "step": 60, **MEASURED},
    {"kind": "test", "step": 60, **MEASURED},
]


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "run")
    run.path.mkdir()
    with run.open_metrics() as file:
        file.writelines(json.dumps(line) + "\n" for line in LINES)
    return run


def test_metrics_are_read_as_they_were_written(run):
    assert run.metrics() == LINES


def test_a_torn_last_line_is_left_out(run):
    whole = run.metrics_path.read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole)):
        run.metrics_path.write_bytes(whole[:cut])
        complete = sum(cut >= end for end in ends)  # a line without its newline is whole all the same
        assert run.metrics() == LINES[:complete]


def test_a_line_of_zeros_as_a_crash_leaves_it_is_left_out(run):
    with run.metrics_path.open("ab") as file:
        file.write(bytes(100))
    assert run.metrics() == LINES


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 9])
def test_metrics_are_cut_to_the_lines_that_a_checkpoint_knows(run, lines):
    with run.metrics_path.open("a") as file:
        file.write('{"kind": "tra')
    before = run.metrics_path.read_bytes()
    run.cut_metrics(lines)
    assert run.metrics() == LINES[:lines]
    assert before.startswith(run.metrics_path.read_bytes())
    with run.open_metrics() as file:  # and they can be gone on with
        assert file.tell() == run.metrics_path.stat().st_size


def test_a_run_without_metrics_has_none(tmp_path):
    run = Run(tmp_path)
    run.cut_metrics(3)
    assert run.metrics() == []
    assert not run.metrics_path.exists()


def test_a_folder_is_a_run_once_it_has_a_config(run):
    assert not run.exists
    run.config_path.write_text(json.dumps({"run": IDENTITY.to_dict(), "steps": 60, **provenance()}))
    assert run.exists
    assert run.identity == IDENTITY
    assert run.result is None
    run.result_path.write_text('{"steps": 3}')
    assert run.result == {"steps": 3}


@pytest.mark.parametrize("text", ["", "{", "\x00\x00"])
def test_a_config_that_is_no_json_is_told_in_a_sentence(run, text):
    run.config_path.write_text(text)
    with pytest.raises(UserError, match=r"config\.json cannot be read as JSON \(Expecting"):
        _ = run.config


def test_runs_are_found_in_a_folder_and_as_the_folder(run):
    assert runs.find(run.path.parent) == []
    run.config_path.write_text("{}")
    (run.path.parent / "other").mkdir()
    assert [found.path for found in runs.find(run.path.parent)] == [run.path]
    assert [found.path for found in runs.find(run.path)] == [run.path]
    with pytest.raises(UserError, match="nowhere does not exist"):
        runs.find(run.path / "nowhere")


# --- the lock ---------------------------------------------------------------------------------

LOCK = "import sys; from pathlib import Path; from resnets.runs import Run\n"
needs_flock = pytest.mark.skipif(sys.platform == "win32", reason="there is no flock on Windows")


@needs_flock
def test_a_second_process_is_refused_until_the_first_lets_go(run):
    code = (
        LOCK
        + f"""
try:
    Run(Path({str(run.path)!r})).lock()
    print("mine")
except ValueError as error:
    print(error)
"""
    )
    with run.lock():
        told = python(code)
        assert told == f"another process is training in {run.path}; wait for it or choose another --out."
        with pytest.raises(UserError, match="another process is training"):
            run.lock()
    assert python(code) == "mine"


@needs_flock
def test_a_killed_process_leaves_no_lock_behind(run):
    code = LOCK + f"held = Run(Path({str(run.path)!r})).lock(); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another process is training"):
            run.lock()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    run.lock().close()


# --- several seeds ----------------------------------------------------------------------------


def test_a_summary_is_the_median_the_mean_and_the_deviation_of_the_papers():
    summary = Summary((6.61, 6.37, 6.5, 6.43, 6.69))
    assert summary.median == 6.5
    assert summary.mean == pytest.approx(6.52)
    assert summary.std == pytest.approx(0.1304, abs=5e-5)  # over n - 1
    assert str(summary) == "median 6.50 % (6.52 +- 0.13, 5 runs)"


def test_an_even_number_of_runs_has_its_median_between_two():
    assert Summary((1.0, 4.0, 2.0, 10.0)).median == 3.0


def test_one_run_has_no_deviation():
    assert Summary((7.25,)).std == 0
    assert str(Summary((7.25,))) == "7.25 %"


# --- provenance -------------------------------------------------------------------------------


def test_provenance_says_what_a_reader_needs():
    told = json.loads(json.dumps(provenance()))
    assert set(told) >= {"command", "commit", "versions", "machine"}
    assert set(told["versions"]) == {"resnets", "torch", "numpy", "python"}
    assert told["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["versions"]["torch"]
    assert set(told["machine"]) == {"system", "cpu", "cores"}
    assert told["machine"]["cores"] == os.cpu_count()
    assert told["machine"]["cpu"]


def test_the_command_is_the_users_own(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/resnets", "train", "preresnet20", "--out", "my runs"])
    assert provenance()["command"] == "resnets train preresnet20 --out 'my runs'"
    monkeypatch.setattr(sys, "argv", ["mine.py"])
    assert provenance()["command"] == "(Python)"


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("command", "published"),
    [
        ("resnets train resnet20 --out /home/alice/runs --seed 3", "resnets train resnet20 --out runs --seed 3"),
        ("resnets train resnet20 --out=/home/alice/runs --lr=0.1", "resnets train resnet20 --out=runs --lr=0.1"),
        (
            "resnets train resnet20 --data '~/my pictures' --out runs/a",
            "resnets train resnet20 --data 'my pictures' --out runs/a",
        ),
        ("resnets train resnet50 --data imagenet:/sets/imagenet/", "resnets train resnet50 --data imagenet:imagenet"),
        ("(Python)", "(Python)"),
    ],
)
def test_a_published_command_has_no_folders_of_a_machine(command, published):
    assert without_folders(command) == published


def test_the_provenance_of_a_result_has_no_folders_of_a_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["resnets", "reproduce", "signals", "--out", str(tmp_path)])
    found = provenance_to_publish()
    assert found["command"] == f"resnets reproduce signals --out {tmp_path.name}"
    assert found.keys() == provenance().keys()


def test_the_commit_is_that_of_the_source_with_a_plus_where_it_was_changed(tmp_path, monkeypatch):
    package = tmp_path / "src" / "resnets"
    package.mkdir(parents=True)
    source = package / "runs.py"
    source.write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    monkeypatch.setattr(runs, "__file__", str(source))
    assert runs.commit() == head
    (tmp_path / "notes").write_text("not source")
    assert runs.commit() == head
    source.write_text("2")
    assert runs.commit() == head + "+"


def test_outside_a_checkout_and_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(runs, "__file__", str(tmp_path / "runs.py"))
    assert runs.commit() is None
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runs.commit() is None


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_a_run_is_not_followed(tmp_path, name, there):
    run, dear = Run(tmp_path / "run"), tmp_path / "dear"
    run.path.mkdir()
    if there:
        dear.write_text("dear\n" * 9)
    (run.path / name).symlink_to(dear)
    with pytest.raises(UserError, match=rf"{name} is a symbolic link, which is not followed; remove it\.$"):
        run.lock()
    if name == "metrics.jsonl":
        with pytest.raises(UserError, match="is a symbolic link"):
            run.open_metrics()
    assert dear.exists() == there
    assert not there or dear.read_text() == "dear\n" * 9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_a_pipe_in_a_run_is_refused_and_not_waited_for(tmp_path, name):

    os.mkfifo(tmp_path / name)
    assert Run(tmp_path).is_locked is False
    run = Run(tmp_path)
    with pytest.raises((UserError, OSError)):  # a pipe without a reader cannot be opened for writing
        (run.lock if name == ".lock" else run.open_metrics)()


def test_metrics_are_appended_and_the_lock_is_kept_as_it_is(tmp_path):
    run = Run(tmp_path)
    (tmp_path / ".lock").write_text("kept")
    for line in ("a\n", "b\n"):
        with run.lock(), run.open_metrics() as file:
            file.write(line)
    assert run.metrics_path.read_text() == "a\nb\n"
    assert (tmp_path / ".lock").read_text() == "kept"
