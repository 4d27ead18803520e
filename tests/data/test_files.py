"""The index of files: what is in it, in which order, and how little it takes."""

import os

import numpy as np
import pytest

from resnets.data.files import class_folders, scan
from resnets.errors import UserError


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * len(name))


def test_every_image_is_found_at_its_path_with_its_label(tmp_path):
    make(tmp_path, "b/2.jpg", "b/1.JPEG", "a/x.png", "c/deep/er/y.webp", "a/notes.txt", "a/.hidden.jpg", ".git/z.jpg")
    folders = class_folders(tmp_path)
    files = scan(tmp_path, folders, [0, 1, 2])
    found = [(os.path.relpath(files.path(i), tmp_path), int(files.labels[i])) for i in range(len(files))]
    assert folders == ("a", "b", "c")
    assert found == [("a/x.png", 0), ("b/1.JPEG", 1), ("b/2.jpg", 1), ("c/deep/er/y.webp", 2)]
    assert all(os.path.isfile(files.path(i)) for i in range(len(files)))


def test_folders_that_are_numbers_are_sorted_as_numbers(tmp_path):
    for name in ("10", "9", "0", "2"):
        (tmp_path / name).mkdir()
    assert class_folders(tmp_path) == ("0", "2", "9", "10")
    (tmp_path / "a").mkdir()
    assert class_folders(tmp_path) == ("0", "10", "2", "9", "a")


def test_names_in_any_writing(tmp_path):
    make(tmp_path, "ä ö/ß\n日本.jpg", "ä ö/a.jpg")
    files = scan(tmp_path, ["ä ö"], [0])
    assert sorted(os.path.basename(files.path(i)) for i in range(2)) == ["a.jpg", "ß\n日本.jpg"]


def test_the_digest_knows_names_sizes_and_labels(tmp_path):
    make(tmp_path, "a/1.jpg", "b/2.jpg")

    def digest(labels=(0, 1)):
        return scan(tmp_path, ("a", "b"), labels).digest

    first = digest()
    assert digest() == first
    assert digest((1, 0)) != first
    (tmp_path / "a/1.jpg").write_bytes(b"longer than before")
    second = digest()
    (tmp_path / "a/1.jpg").rename(tmp_path / "a/3.jpg")
    assert len({first, second, digest()}) == 3


def test_the_index_is_a_few_bytes_a_file(tmp_path):
    names = [f"a/{i:06d}.jpg" for i in range(500)]
    make(tmp_path, *names)
    files = scan(tmp_path, ["a"], [0])
    arrays = (files.names, files.ends, files.places, files.labels)
    assert sum(array.nbytes for array in arrays) == 500 * (len("000000.jpg") + 8 + 4 + 8)
    assert all(isinstance(array, np.ndarray) for array in arrays)


def test_folders_without_an_image_are_refused(tmp_path):
    make(tmp_path, "a/readme.txt")
    with pytest.raises(UserError, match=r"has no image in its class folders; images end in \.jpg"):
        scan(tmp_path, ["a"], [0])
    with pytest.raises(UserError, match="cannot read"):
        scan(tmp_path, ["gone"], [0])
    with pytest.raises(UserError, match="cannot read the folder"):
        class_folders(tmp_path / "gone")
