"""ImageNet's archives in small: the same layout, three classes."""

import io
import tarfile

import numpy as np
import pytest

from pictures import encoded, smooth
from resnets.cli import main
from resnets.data import prepare as module
from resnets.data.folder import open_folder
from resnets.data.prepare import prepare, read_devkit
from resnets.errors import UserError
from resnets.progress import Silent

savemat = pytest.importorskip("scipy.io", reason="the extra imagenet is not installed").savemat

WNIDS = ("n02119789", "n01440764", "n03000000")  # ILSVRC's numbers 1, 2, 3: not in the order of the wnids
COUNTS = {"n02119789": 3, "n01440764": 2, "n03000000": 4}
TRUTH = (3, 1, 2, 2, 3)


def pack(path, files, mode="w"):
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def meta(counts=COUNTS):
    """As the official meta.mat: leaves and an inner node, as an array of structs of Matlab."""
    kind = [(n, object) for n in ("ILSVRC2012_ID", "WNID", "words", "num_children", "num_train_images")]
    rows = [(i, wnid, "a, b", 0, counts[wnid]) for i, wnid in enumerate(WNIDS, 1)] + [(4, "n00001740", "entity", 3, 0)]
    file = io.BytesIO()
    savemat(file, {"synsets": np.array(rows, kind).reshape(-1, 1)}, do_compression=True)
    return file.getvalue()


def devkit(path, counts=COUNTS, truth=TRUTH):
    lines = "".join(f"{number}\n" for number in truth).encode()
    root = "ILSVRC2012_devkit_t12"
    files = {f"{root}/readme.txt": b"", f"{root}/{module.META}": meta(counts), f"{root}/{module.TRUTH}": lines}
    return pack(path, files, "w:gz")


def image(k):
    return encoded(smooth(12, 9, k))


def train_files(counts=COUNTS):
    found = {}
    for wnid, count in counts.items():
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w") as tar:
            for k in range(count):
                member = tarfile.TarInfo(f"{wnid}_{k + 10}.JPEG")
                member.size = len(image(k))
                tar.addfile(member, io.BytesIO(image(k)))
        found[f"{wnid}.tar"] = inner.getvalue()
    return found


def val_files(count=5):
    return {f"ILSVRC2012_val_{k:08d}.JPEG": image(k) for k in range(1, count + 1)}


@pytest.fixture
def archives(tmp_path):
    return {
        "train": pack(tmp_path / "train.tar", train_files()),
        "val": pack(tmp_path / "val.tar", val_files()),
        "devkit": devkit(tmp_path / "devkit.tar.gz"),
        "out": tmp_path / "out",
    }


def tree_of(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.JPEG"))}


WANTED = {f"train/{wnid}/{wnid}_{k + 10}.JPEG": image(k) for wnid, count in COUNTS.items() for k in range(count)}
WANTED |= {f"val/{WNIDS[n - 1]}/ILSVRC2012_val_{k:08d}.JPEG": image(k) for k, n in enumerate(TRUTH, 1)}


def test_every_image_gets_into_the_folder_of_its_class(archives, capsys):
    words = [word for name, path in archives.items() for word in (f"--{name}", str(path))]
    assert main(["data", "prepare", "imagenet", *words]) == 0
    told = capsys.readouterr()
    assert "train: 9 images in" in told.out
    assert "val: 5 images in" in told.out
    assert f"--data imagenet:{archives['out']}" in told.out
    assert tree_of(archives["out"]) == WANTED
    data = open_folder(archives["out"])
    assert data.classes == tuple(sorted(WNIDS))
    assert not list(archives["out"].rglob("*.part"))


def test_it_goes_on_where_it_was_stopped(archives, monkeypatch):
    """Stopped at every image in turn, in the middle of its bytes; what was whole is not written again."""
    copy, written = module._copy, []

    def counted(stream, to):
        written.append(to.name)
        if len(written) % 2 == 0:
            to.write_bytes(stream.read()[:20])
            raise KeyboardInterrupt
        copy(stream, to)

    monkeypatch.setattr(module, "_copy", counted)
    for _ in range(50):
        try:
            done = prepare(**archives, progress=Silent())
            break
        except KeyboardInterrupt:
            assert {name: data for name, data in tree_of(archives["out"]).items() if "part" not in name}.items() <= (
                WANTED.items()
            )
    assert done == {"train": 9, "val": 5}
    assert tree_of(archives["out"]) == WANTED
    assert len(written) <= 2 * 14


def test_the_devkit_is_read(archives):
    known = read_devkit(archives["devkit"])
    assert known.counts == COUNTS
    assert known.truth == [WNIDS[number - 1] for number in TRUTH]


@pytest.mark.parametrize(
    ("part", "make", "words"),
    [
        (
            "train",
            lambda p: pack(p, train_files({**COUNTS, "n01440764": 1})),
            "has 1 images of n01440764, and the devkit",
        ),
        ("train", lambda p: pack(p, dict(list(train_files().items())[:2])), "lacks 1 of 3 classes, as n03000000"),
        ("train", lambda p: pack(p, {**train_files(), "n09999999.tar": b""}), "'n09999999.tar' is not a class"),
        ("train", lambda p: pack(p, {"../../evil.tar": b""}), "is not a class of the devkit"),
        ("train", lambda p: p.write_bytes(b"no tar at all" * 99), "cannot be read as a tar archive"),
        ("val", lambda p: pack(p, val_files(4)), "has 4 of 5 validation images; get it again"),
        ("val", lambda p: pack(p, val_files(6)), "'ILSVRC2012_val_00000006.JPEG', which is not a validation image"),
        ("val", lambda p: pack(p, {"../ILSVRC2012_val_00000001.JPEG": b""}), "which is not a validation image"),
        ("val", lambda p: p.write_bytes(p.read_bytes()[:700]), "cannot be read as a tar archive|validation images"),
        ("devkit", lambda p: pack(p, {"x/readme": b""}, "w:gz"), "is not ImageNet's devkit: it has no data/meta.mat"),
        ("devkit", lambda p: devkit(p, truth=(1, 9)), "must have the number of a class in each line"),
        ("devkit", lambda p: p.unlink(), "there is no archive"),
    ],
)
def test_bad_archives_are_told(archives, part, make, words):
    make(archives[part])
    with pytest.raises(UserError, match=words):
        prepare(**archives, progress=Silent())
    whole = [path.name for path in archives["out"].glob("train/n*")]
    assert all(len(list((archives["out"] / "train" / name).iterdir())) == COUNTS[name] for name in whole)
    assert part != "val" or not (archives["out"] / "val").exists()


def test_something_must_be_unpacked(archives, capsys):
    assert main(["data", "prepare", "imagenet", "--devkit", str(archives["devkit"]), "--out", "x"]) == 2
    assert "give --train, --val or both" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("what", ["folder", "image"])
def test_links_are_not_followed(archives, tmp_path, part, what):
    """In a folder that somebody has put there, made as one that was stopped leaves it."""
    first = next(name for name in WANTED if name.startswith(part))
    image_path = archives["out"] / first
    half = image_path.parent.with_name(f".{image_path.parent.name}.part") if part == "train" else None
    half = half or archives["out"] / ".val.part"
    target = half / image_path.name if part == "train" else half / image_path.parent.name / image_path.name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dear").write_text("dear")
    if what == "folder":
        half.parent.mkdir(parents=True)
        half.symlink_to(elsewhere)
    else:
        target.parent.mkdir(parents=True)
        target.symlink_to(elsewhere / "dear")
    with pytest.raises(UserError, match="is a symbolic link"):
        prepare(**archives, progress=Silent())
    assert [path.name for path in elsewhere.iterdir()] == ["dear"]
    assert (elsewhere / "dear").read_text() == "dear"
