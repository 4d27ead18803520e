"""Class folders: which classes, which labels, and what is refused."""

import numpy as np
import pytest

from pictures import REAL, tree
from resnets.data import open_data as load
from resnets.data import open_folder
from resnets.errors import UserError


def test_train_and_val(tmp_path):
    tree(tmp_path / "train")
    tree(tmp_path / "val", classes=("dog", "emu"), each=2)
    data = load(str(tmp_path))
    assert data.classes == ("cat", "dog", "emu")
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test.labels.tolist() == [1, 1, 2, 2]
    assert (data.num_classes, data.channels, data.name) == (3, 3, str(tmp_path))
    before = data.digest
    (tmp_path / "val" / "emu" / "1.jpg").unlink()
    assert load(str(tmp_path)).digest != before


def test_one_tree_is_held_out_from(tmp_path):
    data = open_folder(tree(tmp_path, each=10))
    assert data.test is None
    train, held = data.split(6, 0)
    assert np.bincount(data.train.labels[held]).tolist() == [2, 2, 2]
    assert sorted([*train, *held]) == list(range(30))


def test_numbers_are_classes_of_imagenet(tmp_path):
    data = load(f"imagenet:{tree(tmp_path, classes=('0003', '0010', '0999'))}")
    assert data.num_classes == 1000
    assert sorted(set(data.train.labels.tolist())) == [3, 10, 999]
    assert data.name == f"imagenet:{tmp_path}"


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no photographs in {REAL}")
def test_the_real_tree():
    data = load(f"imagenet:{REAL}")
    assert len(data.train) == 200
    assert data.train.labels.tolist() == list(range(0, 1000, 5))


def test_wnids(tmp_path):
    names = [f"n{i:08d}" for i in range(1000)]
    tree(tmp_path / "train", classes=names[:3], each=1)
    with pytest.raises(UserError, match=r"is not ImageNet: its 1000 folders are named by wnid.* it has 3 folders"):
        load(f"imagenet:{tmp_path}")
    for name in names:
        (tmp_path / "train" / name).mkdir(exist_ok=True)
    data = load(f"imagenet:{tmp_path}")
    assert data.classes == tuple(names)
    (tmp_path / "train" / "zebra").mkdir()
    with pytest.raises(UserError, match="zebra is neither; leave out imagenet: for other images"):
        load(f"imagenet:{tmp_path}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: None, "must have a folder for each class, and has 0 folders"),
        (lambda root: tree(root, classes=("cat",)), "must have a folder for each class, and has 1 folders"),
        (lambda root: (root / "a").mkdir() or (root / "b").mkdir(), "has no image in its class folders"),
        (
            lambda root: tree(root / "train") and tree(root / "val", classes=("cow",)),
            "has the class cow, which the training images do not have",
        ),
    ],
)
def test_bad_folders_are_told(tmp_path, make, words):
    make(tmp_path)
    with pytest.raises(UserError, match=words):
        load(str(tmp_path))


def test_what_is_neither_a_set_nor_a_folder_is_told(tmp_path):
    with pytest.raises(UserError, match="there is no data set or folder 'cifar11': did you mean cifar10"):
        load("cifar11")
    with pytest.raises(UserError, match="there is no folder"):
        load(str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"imagenet:DIR"):
        load("imagenet")
