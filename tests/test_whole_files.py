"""Every command that writes a file writes it whole or not at all: on a full disk what stood there before stays."""

import errno
import os
from pathlib import Path

import pytest
from PIL import Image

from resnets.atomic import make_folder_of, open_atomically, write_atomically
from resnets.cli import main
from resnets.errors import UserError
from resnets.training.session import train
from tools.tables import pages as tables

ROOT = Path(__file__).parents[1]
FULL = "the disk is full; earlier files are intact"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of a second."""
    network, recipe = {"widths": (4, 8, 8), "blocks": 1}, {"length": "2it", "batch": 16, "warmup": "0it"}
    out = tmp_path_factory.mktemp("runs")
    return train("preresnet20", "synthetic:64", network=network, out=out, quiet=True, milestones="", **recipe)


@pytest.fixture
def full_disk(monkeypatch):
    """A function after which nothing more can be written."""

    def fail(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda: monkeypatch.setattr(os, "fsync", fail)


WRITERS = {
    "a.svg": "plot RUN -o OUT",
    "a.png": "plot RUN -o OUT",
    "a.pdf": "plot RUN -o OUT",
    "result.json": "results RUN -o OUT",
    "page.html": "report RESULTS -o OUT",
    "test.json": "eval RUN --data synthetic:64 -o OUT",
    "net.pt2": "export RUN --format torch-export -o OUT",
    "cam.png": "predict PICTURE --weights RUN --cam OUT",
    "propagation.json": "analyze RUN --data synthetic:64 --batch 8 --out FOLDER",
    "propagation.svg": "analyze RUN --data synthetic:64 --batch 8 --out FOLDER",
}


@pytest.mark.parametrize(("name", "line"), WRITERS.items(), ids=WRITERS)
def test_a_command_on_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, run, full_disk, capsys, name, line):
    folder, picture = tmp_path / "out", tmp_path / "picture.png"
    folder.mkdir()
    Image.new("RGB", (32, 32)).save(picture)
    (folder / name).write_text("old")
    words = {"RUN": run.path, "OUT": folder / name, "FOLDER": folder, "PICTURE": picture, "RESULTS": ROOT / "results"}
    full_disk()
    assert main([str(words.get(word, word)) for word in line.split()]) == 2
    assert FULL in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "old"


def test_tables_on_a_full_disk_leave_the_page_as_it_was(tmp_path, full_disk, capsys):
    page = "<!-- results: cifar -->\nold\n<!-- end -->\n"
    (tmp_path / "README.md").write_text(page)
    full_disk()
    assert tables.main([str(tmp_path)]) == 2
    assert FULL in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == page


def test_a_drawing_that_fails_after_the_first_bytes_leaves_the_old_one(tmp_path, run, monkeypatch):
    """As it did when matplotlib wrote to the file itself."""
    from matplotlib.figure import Figure

    def stop(self, file, **options):
        file = file if hasattr(file, "write") else open(file, "wb")  # noqa: SIM115
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", stop)
    (tmp_path / "a.svg").write_text("old")
    assert main(["plot", str(run.path), "-o", str(tmp_path / "a.svg")]) == 130
    assert (tmp_path / "a.svg").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


# --- the writer -------------------------------------------------------------------------------


def test_a_block_that_raises_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), open_atomically(tmp_path / "a") as file:
        file.write(b"half" * (1 // 0))
    assert not list(tmp_path.iterdir())


def test_the_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "there").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["", ".", "folder"])
def test_a_folder_is_not_written_over(tmp_path, monkeypatch, name):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="it is a folder; name a file"):
        write_atomically(Path(name), b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_longest_name_that_a_file_can_have_can_be_written(tmp_path):
    write_atomically(tmp_path / ("a" * 255), b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a" * 255]
    with pytest.raises(UserError, match="File name too long"):
        write_atomically(tmp_path / ("ä" * 200), b"x")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_where_a_folder_is_wanted_is_told(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        make_folder_of(tmp_path / "a" / "b" / "c.json")
