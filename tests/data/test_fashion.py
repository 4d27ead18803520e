"""Fashion-MNIST from its four files: a small one here, in the form in which the real one is published."""

import dataclasses
import gzip
import hashlib
import struct

import numpy as np
import pytest

import resnets.data.fetch as module
from resnets.data import load
from resnets.data.dataset_spec import RECORD
from resnets.data.fetch import fetch
from resnets.data.idx import read_idx
from resnets.data.sets import FASHION_MNIST
from resnets.errors import UserError


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def small():
    """Two training images and one test image of each class: the files, the grey images, the labels, the description."""
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    labels = np.concatenate([rng.permutation(np.repeat(np.arange(10), 2)), rng.permutation(10)]).astype(np.uint8)
    names = FASHION_MNIST.layouts[1].files  # images to train and to test with, then their labels
    files = {
        name: idx(part) for name, part in zip(names, (grey[:20], grey[20:], labels[:20], labels[20:]), strict=True)
    }
    rows = np.zeros(30, RECORD)
    rows["label"] = labels
    for i in range(30):  # the oracle: pixel by pixel
        for y in range(28):
            for x in range(28):
                rows["image"][i, :, y + 2, x + 2] = grey[i, y, x]
    known = dataclasses.replace(
        FASHION_MNIST,
        counts=(20, 10),
        official=hashlib.sha256(rows.tobytes()).hexdigest(),
        download="http://127.0.0.1:9",
    )
    return files, rows, known


@pytest.fixture
def alone(alone, monkeypatch):
    monkeypatch.setattr(module, "DEBIAN", str(alone / "debian"))
    return alone


def write(folder, files, packed):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(data, mtime=0) if packed else data)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["data", "data/FashionMNIST/raw", "data/fashion-mnist", "debian/fashion-mnist"])
def test_grey_images_become_rows_wherever_they_lie(alone, recorder, small, packed, place):
    files, rows, known = small
    write(alone / place, files, packed)
    found = fetch(known, None, recorder)
    assert (alone / place).samefile(found.source)
    assert np.array_equal(np.concatenate([found.images.train_images, found.images.test_images]), rows["image"])
    assert np.array_equal(np.concatenate([found.images.train_labels, found.images.test_labels]), rows["label"])
    assert fetch(known, None, recorder).source.endswith("fashion-mnist.npy")


def test_the_official_files_are_downloaded_one_by_one(alone, recorder, small, monkeypatch):
    files, rows, known = small
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in files.items()}
    write(alone / "home", files, packed=True)
    for name, data in packed.items():
        (alone / "home" / name).write_bytes(data)
    layout = dataclasses.replace(
        known.layouts[0], md5s=tuple(hashlib.md5(packed[name]).hexdigest() for name in known.layouts[0].files)
    )
    home = (alone / "home").as_uri()
    known = dataclasses.replace(known, layouts=(layout, known.layouts[1]), download=home)
    found = fetch(known, None, recorder)
    assert found.source == home
    assert np.array_equal(found.images.test_labels, rows["label"][20:])


def test_other_pixels_are_refused_and_what_is_missing_is_named(alone, recorder, small):
    files, _, known = small
    changed = dict(files)
    changed[known.layouts[1].files[0]] = files[known.layouts[1].files[0]][:-1] + b"\x00"
    write(alone / "elsewhere", changed, packed=True)
    with pytest.raises(UserError, match="is not Fashion-MNIST: the sha256 of its pixels and labels is"):
        fetch(known, alone / "elsewhere", recorder)
    with pytest.raises(UserError, match=r"put train-images-idx3-ubyte\.gz, t10k-.* into \./data"):
        fetch(known, None, recorder)


GOOD = idx(np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"x",
        b"\x01" + GOOD[1:],
        GOOD[:2] + b"\x0d" + GOOD[3:],  # floats
        GOOD[:7],
        gzip.compress(GOOD, mtime=0)[:-9],
        gzip.compress(GOOD, mtime=0)[:10] + b"\xff" * 9,
        struct.pack(">HBB2I", 0, 8, 2, 1 << 31, 1 << 31),
    ],
)
def test_what_is_no_idx_file_is_told(data):
    assert read_idx(gzip.compress(GOOD, mtime=0), "x").tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UserError, match=r"x is (broken|not an IDX file)"):
        read_idx(data, "x")


def test_the_real_set_is_clothes():
    from resnets.cache import cache_dir

    if not (cache_dir() / "fashion-mnist.npy").exists():
        pytest.skip("Fashion-MNIST is not in the cache; `resnets data fetch fashion-mnist` gets it")
    images = load("fashion-mnist")
    assert [images.classes[k] for k in images.train_labels[:4]] == ["Ankle boot", "T-shirt/top", "T-shirt/top", "Dress"]
    counts = np.bincount(images.train_images[:, 0, 2:30, 2:30].ravel(), minlength=256) / (60_000 * 28 * 28)
    mean = (counts * np.arange(256)).sum() / 255
    std = np.sqrt((counts * (np.arange(256) / 255 - mean) ** 2).sum())
    assert (mean, std) == pytest.approx((0.2860, 0.3530), abs=6e-5)  # as others give them, of 28x28
