"""A disk that is full at any write: a clear sentence, earlier files intact, and the same end once there is room."""

import errno
import os
import subprocess
import sys
from contextlib import suppress

import pytest
import tiny

from resnets import runs
from resnets.errors import UserError
from resnets.training import checkpoint
from resnets.training.loop import Trainer

SHORT = {"length": "3it", "warmup": "0it", "milestones": "", "log_every": 1, "checkpoint_every": 0}
FULL = r"cannot write .*: the disk is full; earlier files are intact, so free some space and try again\."


class Full:
    """os.fsync on a disk that is full at call `at`, and from then on."""

    def __init__(self, at):
        self.at, self.calls, self.fsync = at, 0, os.fsync

    def __call__(self, handle):
        self.calls += 1
        if self.calls > self.at:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.fsync(handle)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny.train_tiny(tmp_path_factory.mktemp("whole"), **SHORT)


def test_whichever_write_fails_the_run_can_be_taken_up_and_ends_the_same(tmp_path, monkeypatch, whole):
    counter = Full(at=10**9)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counter)
        tiny.train_tiny(tmp_path / "count", **SHORT)
    assert counter.calls > 10
    for at in range(counter.calls - 1):  # the last call flushes the folder, whose failure costs nothing
        out = tmp_path / str(at)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", Full(at))
            with pytest.raises(UserError, match=FULL):
                tiny.train_tiny(out, **SHORT)
        assert not list(out.rglob("*.part"))
        for run in runs.find(out):
            checkpoint.newest(run.checkpoints, pytest.fail)
        tiny.assert_same(tiny.train_tiny(out, **SHORT), whole)


class Deaf:
    """A metrics file whose every write fails, as a buffer does that is full when the disk is."""

    def __init__(self, file):
        self.file = file

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_line_of_metrics_that_cannot_be_written_is_told_too(tmp_path, monkeypatch, whole):
    opened = runs.Run.open_metrics
    with monkeypatch.context() as patch:
        patch.setattr(runs.Run, "open_metrics", lambda self: Deaf(opened(self)))
        with pytest.raises(UserError, match=FULL) as told:
            tiny.train_tiny(tmp_path, **SHORT)
    assert "metrics.jsonl" in str(told.value)
    tiny.assert_same(tiny.train_tiny(tmp_path, **SHORT), whole)


# --- a disk that is really full ---------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """A disk of one megabyte."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a tmpfs")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mount says: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("at", [0, 6, 11])
def test_a_small_disk_that_fills_up_is_told_and_survived(tmp_path, disk, monkeypatch, at):
    """Something else takes all the room while step `at` is trained; then the disk is made larger."""
    step = Trainer.step

    def filling(self, i):
        if i == at:
            with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        step(self, i)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", filling)
        with pytest.raises(UserError, match=FULL):
            tiny.train_tiny(disk, checkpoint_every=0)
    (run,) = runs.find(disk)
    assert checkpoint.newest(run.checkpoints, pytest.fail).step == at
    assert not list(disk.rglob("*.part"))
    with pytest.raises(UserError, match=FULL):  # it is still full, and still nothing is lost
        tiny.train_tiny(disk, checkpoint_every=0)
    assert checkpoint.newest(run.checkpoints, pytest.fail).step == at
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    tiny.assert_same(tiny.train_tiny(disk, checkpoint_every=0), tiny.train_tiny(tmp_path / "whole"))


def test_a_disk_too_small_to_begin_on_is_told(disk):
    with pytest.raises(UserError, match=FULL):
        tiny.train_tiny(disk, network={"widths": (64, 128, 256), "blocks": 1})
    assert not runs.find(disk)
