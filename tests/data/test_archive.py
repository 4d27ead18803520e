"""Archives are read member by member; one that tries something is refused whole."""

import io
import tarfile

import pytest

from resnets.data import archive
from resnets.data.archive import read_archive
from resnets.errors import UserError


def pack(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return path


def member(name, kind=tarfile.REGTYPE, link="", size=3):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return info


@pytest.mark.parametrize("mode", ["w:gz", "w", "w:xz"])
def test_gives_the_wanted_members(tmp_path, mode):
    path = pack(
        tmp_path / "a.tar", member("d", tarfile.DIRTYPE), member("d/a"), member("d/b"), member("d/c"), mode=mode
    )
    assert read_archive(path, ["d/a", "d/c"]) == {"d/a": b"xxx", "d/c": b"xxx"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (member("../evil"), r"\.\. in its name"),
        (member("d/../../evil"), r"\.\. in its name"),
        (member("d\\..\\evil"), r"\.\. in its name"),
        (member("/etc/passwd"), "absolute"),
        (member("C:\\evil"), "absolute"),
        (member("\\evil"), "absolute"),
        (member("d/link", tarfile.SYMTYPE, "/etc/passwd"), "link"),
        (member("d/link", tarfile.LNKTYPE, "d/a"), "link"),
        (member("d/dev", tarfile.CHRTYPE), "device"),
        (member("d/dev", tarfile.BLKTYPE), "device"),
        (member("d/pipe", tarfile.FIFOTYPE), "special"),
        (member("d/big", size=1000), "hold more than"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else "",
)
def test_refuses_members_that_no_data_set_has(tmp_path, monkeypatch, bad, why):
    monkeypatch.setattr(archive, "LARGEST", 999)
    path = pack(tmp_path / "a.tgz", member("d/a"), bad)
    with pytest.raises(UserError, match=f"a.tgz is refused: its member .*{why}"):
        read_archive(path, ["d/a"])


def test_refuses_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MEMBERS", 5)
    path = pack(tmp_path / "a.tgz", *(member(f"d/{k}") for k in range(6)))
    with pytest.raises(UserError, match="more than"):
        read_archive(path, ["d/0"])


def test_says_what_is_missing(tmp_path):
    with pytest.raises(UserError, match="lacks d/b, d/c; fetch it again"):
        read_archive(pack(tmp_path / "a.tgz", member("d/a")), ["d/a", "d/b", "d/c"])


@pytest.mark.parametrize("keep", [0, 10, 60, 100])
def test_refuses_what_is_cut_off_or_no_archive(tmp_path, keep):
    path = pack(tmp_path / "a.tgz", member("d/a", size=5000), member("d/b", size=5000))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"a\.tgz"):
        read_archive(path, ["d/a", "d/b"])
    path.write_text("<html>no such page</html>")
    with pytest.raises(UserError, match="cannot be read as a tar archive"):
        read_archive(path, ["d/a"])
