"""Checkpoints as files: what is written is read, and what is damaged is passed over."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from resnets.errors import UserError
from resnets.training.checkpoint import Checkpoint, list_checkpoints, newest, save


def made(step):
    tensors = {"a": torch.arange(100.0) + step, "b": torch.tensor([step]), "c": torch.ones(2, dtype=torch.bfloat16)}
    return Checkpoint(step, tensors, {"lines": step, "words": ["ä", None, 0.1]})


def assert_equal(one, other):
    assert (one.step, one.state) == (other.step, other.state)
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name])


@pytest.fixture
def folder(tmp_path):
    """The checkpoints of steps 10 and 20."""
    for step in (10, 20):
        save(tmp_path / "run" / "checkpoints", made(step))
    return tmp_path / "run" / "checkpoints"


def steps(folder):
    return [int(path.name.split("-")[1]) for path in list_checkpoints(folder)]


def test_what_was_saved_is_read(folder):
    assert_equal(newest(folder), made(20))


def test_the_last_two_are_kept(folder):
    for step in (30, 40, 100_000_000):
        save(folder, made(step))
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in list_checkpoints(folder))
    assert_equal(newest(folder), made(100_000_000))
    assert sorted(steps(folder)) == [40, 100_000_000]


def test_the_newest_is_the_one_of_the_last_step_however_many_digits_it_has(tmp_path):
    for step in (99_999_998, 99_999_999, 100_000_000):
        save(tmp_path, made(step))
    assert steps(tmp_path) == [100_000_000, 99_999_999]
    assert newest(tmp_path).step == 100_000_000


@pytest.mark.parametrize("name", ["step-7x-abc", "step-٣-abc", "step-30-xyz", "step-", "step-30"])
def test_files_with_other_names_are_no_checkpoints(folder, name):
    (folder / f"{name}.safetensors").write_bytes(b"something")
    assert steps(folder) == [20, 10]
    assert_equal(newest(folder, pytest.fail), made(20))
    save(folder, made(30))
    assert steps(folder) == [30, 20]


def test_bytes_that_are_no_checkpoint_are_passed_over_though_their_checksum_matches(folder):
    for data in (b"", b"\xff" * 100, safetensors.torch.save({"a": torch.zeros(1)})):
        digest = hashlib.sha256(data).hexdigest()[:16]
        (folder / f"step-00000030-{digest}.safetensors").write_bytes(data)
    with pytest.warns(UserWarning, match="is no checkpoint; using the checkpoint before it") as told:
        assert_equal(newest(folder), made(20))
    assert len(told) == 3


def test_one_with_a_fault_is_passed_over(folder):
    said = []
    found_fault = {20: "a fault", 10: None}
    assert_equal(newest(folder, said.append, lambda checkpoint: found_fault[checkpoint.step]), made(10))
    assert said == ["a fault; using the checkpoint before step 20."]


def flipped(path):
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "cut by one byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "filled with zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "one bit flipped": flipped,
    "another's bytes": lambda path: shutil.copy(list_checkpoints(path.parent)[1], path),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_one_is_passed_over_with_a_warning(folder, damage):
    path = list_checkpoints(folder)[0]
    damage(path)
    with pytest.warns(UserWarning, match=r"is damaged \(its checksum does not match\); using the checkpoint before it"):
        assert_equal(newest(folder), made(10))
    assert path.exists()


def test_a_deleted_one_leaves_the_one_before(folder):
    list_checkpoints(folder)[0].unlink()
    assert_equal(newest(folder), made(10))


def test_one_that_cannot_be_read_is_passed_over_with_a_warning(folder, monkeypatch):
    first, read = list_checkpoints(folder)[0], Path.read_bytes

    def refused(path):
        if path == first:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.warns(UserWarning, match=r"cannot be read \(Permission denied\); using the checkpoint before it"):
        assert_equal(newest(folder), made(10))


def test_none_that_is_whole_is_an_error_that_says_what_to_do(folder):
    for path in list_checkpoints(folder):
        path.write_bytes(b"")
    said = []
    with pytest.raises(UserError) as told:
        newest(folder, said.append)
    assert len(said) == 2
    assert str(told.value) == (
        f"the run in {folder.parent} cannot go on: none of its 2 checkpoints is whole; delete the folder to start over."
    )


def test_none_at_all_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"cannot go on: it has no checkpoint; delete the folder to start over\."):
        newest(tmp_path / "run" / "checkpoints")


def test_after_damage_there_are_soon_two_whole_ones_again(folder):
    """The damaged one is of a later step than those that are written next, and must not count among the last two."""
    DAMAGES["filled with zeros"](list_checkpoints(folder)[0])
    for step in (12, 14):
        save(folder, made(step))
    assert steps(folder) == [14, 12]
    assert newest(folder, pytest.fail).step == 14


def test_a_step_written_again_takes_the_place_of_its_damaged_file(folder):
    DAMAGES["cut short"](list_checkpoints(folder)[0])
    save(folder, made(20))
    assert steps(folder) == [20, 10]
    assert_equal(newest(folder, pytest.fail), made(20))


def test_what_a_killed_writer_left_is_removed_by_the_next(folder):
    left = folder / ".step-00000030-0123.safetensors.abcd.part"
    left.write_bytes(b"half of it")
    assert_equal(newest(folder), made(20))
    save(folder, made(30))
    assert not left.exists()


def test_a_killed_rename_leaves_what_was_there(folder, monkeypatch):
    def refuse(*args):
        raise OSError(5, "Input/output error")

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UserError, match=r"cannot write .*Input/output error; earlier files are intact"):
        save(folder, made(30))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
