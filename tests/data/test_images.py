import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resnets.data.images import Images
from resnets.errors import UserError


def images(labels, classes=10, **changes):
    n = len(labels)
    fields = {
        "name": "x",
        "classes": tuple(map(str, range(classes))),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.2, 0.2, 0.2),
        "train_images": np.zeros((n, 3, 4, 4), np.uint8),
        "train_labels": np.asarray(labels, np.int64),
        "test_images": np.zeros((2, 3, 4, 4), np.uint8),
        "test_labels": np.zeros(2, np.int64),
    }
    return Images(**(fields | changes))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=200),
    st.integers(0, 2**63),
    st.data(),
)
@settings(deadline=None, database=None)
def test_split_parts_the_training_set_with_an_equal_share_of_each_class(labels, seed, data):
    set_ = images(labels, classes=5)
    n = len(labels)
    k = data.draw(st.integers(0, n - 1))
    train, held = set_.split(k, seed)
    assert len(held) == k
    assert sorted([*train, *held]) == list(range(n))
    assert (np.diff(train) > 0).all()
    assert (np.diff(held) > 0).all()
    sizes = np.bincount(labels, minlength=5)
    share = np.bincount(np.asarray(labels)[held], minlength=5)
    assert (np.abs(share - sizes * k / n) < 2).all()
    again = set_.split(k, seed)
    assert np.array_equal(again[0], train)
    assert np.array_equal(again[1], held)


def test_split_holds_out_5000_of_cifar_as_500_a_class_and_nests():
    set_ = images(np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000)))
    train, held = set_.split(5000, seed=1)
    assert np.bincount(set_.train_labels[held]).tolist() == [500] * 10
    assert len(train) == 45_000
    assert set(set_.split(1000, seed=1)[1]) <= set(held)
    overlap = len(np.intersect1d(held, set_.split(5000, seed=2)[1]))
    assert 350 < overlap < 650  # a tenth by chance: 500, standard deviation 20


@pytest.mark.parametrize("n", [-1, 20, 21, 2.0, True])
def test_split_refuses(n):
    with pytest.raises(UserError, match="0 to 19 of the 20"):
        images(np.arange(20) % 10).split(n, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"train_images": np.zeros((3, 3, 4, 4), np.float32)},
        {"train_images": np.zeros((3, 1, 4, 4), np.uint8)},
        {"train_images": np.zeros((3, 48), np.uint8)},
        {"train_images": np.zeros((0, 3, 4, 4), np.uint8), "train_labels": np.zeros(0, np.int64)},
        {"train_labels": np.zeros(2, np.int64)},
        {"train_labels": np.zeros(3, np.int32)},
        {"train_labels": np.array([0, 1, 10])},
        {"test_labels": np.array([0, -1])},
    ],
)
def test_images_of_another_form_are_refused(changes):
    with pytest.raises(UserError, match=r"^x: (training|test) (images|labels) must"):
        images([0, 1, 2], **changes)


def test_the_digest_follows_from_pixels_and_labels():
    one = images([0, 1, 2])
    assert images([0, 1, 2]).digest == one.digest
    other = one.train_images.copy()
    other[1, 2, 3, 3] = 1
    changed = [
        {"train_images": other},
        {"train_labels": np.array([0, 1, 1])},
        {"test_images": one.test_images + np.uint8(1)},
        {"test_labels": np.array([0, 1])},
        {"train_images": np.zeros((3, 3, 2, 8), np.uint8)},
    ]
    assert len({one.digest, *(dataclasses.replace(one, **change).digest for change in changed)}) == 6
    with pytest.raises(TypeError, match="digest"):
        images([0, 1, 2], digest="0123")


def test_a_digest_of_another_form_holds_for_its_own_pixels_alone():
    one = images([0, 1, 2]).with_digest("official")
    assert one.digest == "official"
    assert dataclasses.replace(one, mean=(0.1,) * 3).digest == "official"
    other = dataclasses.replace(one, train_images=one.train_images + np.uint8(1))
    assert other.digest not in ("official", images([0, 1, 2]).digest)
    one.train_images[0, 0, 0, 0] = 7  # in place
    assert one.digest != "official"


def test_images_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        images([0]).name = "y"


def test_small_classes_that_tie_may_be_more_than_one_image_off():
    """Four classes of one image and one of three: of five held out the draws decide which."""
    set_ = images([0, 1, 1, 1, 2, 3, 4], classes=5)
    shares = {
        np.bincount(np.array([0, 1, 1, 1, 2, 3, 4])[set_.split(5, seed)[1]], minlength=5)[1] for seed in range(50)
    }
    assert shares == {1, 2}
