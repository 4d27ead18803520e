"""A library is loaded only if nobody else can have made it; else it is compiled anew, and one line says why."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from resnets.native_build import Library, NotBuiltError, Ways

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here"),
]
root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a file away")
SOURCE = 'extern "C" int answer() { return 42; }\n'
STRANGER = 12345


def answer(path: Path) -> int:
    try:
        return ctypes.CDLL(str(path)).answer()
    except OSError:
        raise NotBuiltError("does not load") from None


@pytest.fixture
def load(tmp_path, monkeypatch, capsys):
    """Loads the library of a new process; returns where it was found and what was said."""
    (tmp_path / "answer.cpp").write_text(SOURCE)
    monkeypatch.setenv("RESNETS_CACHE", str(tmp_path / "way" / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RESNETS_NATIVE", raising=False)

    def run() -> tuple[str, list[str]]:
        library = Library(tmp_path / "answer.cpp", "an answer", Ways((("-fPIC",),), ((),)), answer)
        found, how = library.load()
        assert found == 42
        return how, capsys.readouterr().err.splitlines()

    return run


@pytest.fixture
def kept(load, tmp_path) -> Path:
    """The library as we have put it into the cache: valid in every regard."""
    how, said = load()
    [path] = (tmp_path / "way" / "cache" / "native").iterdir()
    assert how == str(path)
    assert said == ["resnets: compiling an answer for this CPU, once, in less than a minute."]
    return path


def test_ours_is_loaded_without_a_word(kept, load, tmp_path):
    assert load() == (str(kept), [])
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "home" / "resnets" / "key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "home" / "resnets").iterdir()] == ["key"]


def test_a_sticky_folder_on_the_way_is_safe(kept, load):
    kept.parents[2].chmod(0o1777)
    assert load() == (str(kept), [])


def give_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


def let_all_write(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def let_the_group_write(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def turn_into_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


FAULTS = [
    pytest.param(give_away, "belongs to another user", marks=root),
    (let_all_write, "is writable by other users"),
    (let_the_group_write, "is writable by other users"),
    (turn_into_a_link, "is a symbolic link"),
]


@pytest.mark.parametrize("which", ["native", "cache", "on the way"])
@pytest.mark.parametrize(("change", "why"), FAULTS)
def test_a_folder_that_is_not_ours_alone_is_neither_read_nor_written(kept, load, which, change, why):
    place = {"native": kept.parent, "cache": kept.parents[1], "on the way": kept.parents[2]}[which]
    before = kept.read_bytes()
    change(place)
    how, said = load()
    assert how == f"compiled for this process; {place} {why}" + how.partition(why)[2]
    assert len(said) == 1
    assert f"for this process alone, in less than a minute: {place} {why}" in said[0]
    assert kept.read_bytes() == before
    assert len(list(kept.parent.iterdir())) == 1


@pytest.mark.parametrize(("change", "why"), FAULTS)
def test_a_file_that_is_not_ours_alone_is_replaced(kept, load, change, why):
    change(kept)
    how, said = load()
    assert how == str(kept)
    assert len(said) == 1
    assert f"{kept} " in said[0]
    assert not kept.is_symlink()
    assert (kept.stat().st_uid, stat.S_IMODE(kept.stat().st_mode)) == (os.getuid(), 0o600)
    assert load() == (str(kept), [])


@pytest.mark.parametrize("fault", ["cut", "bit", "empty", "another key", "hash without a key", "another name"])
def test_a_library_without_our_seal_is_made_anew(kept, load, tmp_path, fault):
    import hashlib

    data = bytearray(kept.read_bytes())
    if fault == "another key":
        (tmp_path / "home" / "resnets" / "key").write_bytes(b"k" * 32)
    elif fault == "another name":
        (tmp_path / "answer.cpp").write_text(SOURCE + "// changed\n")
        load()
        [other] = set(kept.parent.iterdir()) - {kept}
        (tmp_path / "answer.cpp").write_text(SOURCE)
        kept.write_bytes(other.read_bytes())
    else:
        data[100] ^= fault == "bit"
        broken = {"cut": data[:-1000], "bit": data, "empty": b""}
        kept.write_bytes(broken.get(fault, data[:-32] + hashlib.sha256(data[:-32]).digest()))
    how, said = load()
    assert how == str(kept)
    assert said == ["resnets: compiling an answer for this CPU, once, in less than a minute."]
    assert load() == (str(kept), [])


@pytest.mark.parametrize("change", [pytest.param(give_away, marks=root), let_all_write, turn_into_a_link])
@pytest.mark.parametrize("which", ["key", "folder"])
def test_a_key_that_others_may_know_or_have_made_is_not_used(kept, load, tmp_path, change, which):
    home = tmp_path / "home" / "resnets"
    change(home if which == "folder" else home / "key")
    how, said = load()
    assert how.startswith(f"compiled for this process; {home}")
    assert len(said) == 1


def test_a_key_that_others_may_read_is_no_secret(kept, load, tmp_path):
    (tmp_path / "home" / "resnets" / "key").chmod(0o644)
    assert "others may access it" in load()[0]


@root
def test_root_writes_nothing_into_the_cache_of_a_user(load, tmp_path):
    cache = tmp_path / "way" / "cache"
    cache.mkdir(parents=True)
    give_away(cache)
    how, _ = load()
    assert "belongs to another user" in how
    assert list(cache.iterdir()) == []


def test_no_library_is_loaded_from_a_temporary_folder_that_others_can_exchange(load, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary").chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(NotBuiltError, match="no safe temporary folder"):
        load()


def test_a_loose_umask_does_not_open_the_cache(load):
    before = os.umask(0o002)
    try:
        path = load()[0]
        assert load() == (path, [])
    finally:
        os.umask(before)


def test_many_processes_at_once_in_an_empty_cache(tmp_path):
    (tmp_path / "answer.cpp").write_text(SOURCE)
    code = (
        "import ctypes; from pathlib import Path; from resnets.native_build import Library, Ways;"
        f"made = Library(Path({str(tmp_path / 'answer.cpp')!r}), 'an answer', Ways((('-fPIC',),), ((),)),"
        "lambda path: ctypes.CDLL(str(path)).answer()); print(*made.load())"
    )
    places = {"RESNETS_CACHE": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", code]
    some = [subprocess.Popen(command, env=os.environ | places, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    found = {process.communicate(timeout=600)[0].strip() for process in some}
    [made] = (tmp_path / "cache" / "native").iterdir()
    assert found == {f"42 {made}"}
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (f"42 {made}", "")
