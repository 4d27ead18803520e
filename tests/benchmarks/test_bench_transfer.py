"""The comparison of given weights with new ones, on a handful of images."""

import argparse
import math

import numpy as np
import pytest

import resnets
from benchmarks import transfer
from benchmarks.paired import difference
from resnets.data.synthetic import synthetic
from resnets.recipe import recipe_of
from tools.tables.pages import fill_page


def test_few_images_are_as_many_of_each_class_and_all_of_the_test():
    images = synthetic(400)
    some = transfer.few(images, 100)
    assert np.bincount(some.train_labels).tolist() == [10] * 10
    assert np.array_equal(some.test_images, images.test_images)
    assert some.digest != images.digest
    pixels = {image.tobytes(): label for image, label in zip(images.train_images, images.train_labels, strict=True)}
    for image, label in zip(some.train_images, some.train_labels, strict=True):
        assert pixels[image.tobytes()] == label


def test_the_bound_is_students():
    """By hand: differences 1, 2, 3 have mean 2 and deviation 1."""
    mean, bound = difference([2, 4, 6], [1, 2, 3])
    assert (mean, bound) == (pytest.approx(2), pytest.approx(4.303 / math.sqrt(3)))


def test_every_way_is_trained_alike_and_told(tmp_path):
    net = resnets.create("preresnet20", num_classes=7, seed=5)
    resnets.save_weights(net, tmp_path / "w.safetensors")
    args = argparse.Namespace(
        net="preresnet20", weights=str(tmp_path / "w.safetensors"), data="synthetic:80", dir=None, images=40,
        length="1it", seeds=2, runs=tmp_path / "runs",
    )  # fmt: skip
    found = transfer.compare(args)
    assert {way: len(errors) for way, errors in found["errors"].items()} == dict.fromkeys(transfer.ways(""), 2)
    rates = {way: (recipe["lr"], recipe["muon_lr"]) for way, recipe in found["recipes"].items()}
    quick = recipe_of("cifar-quick")
    assert rates["from weights"] == rates["new"] != (quick.lr, quick.muon_lr)
    assert rates["new, at the rates of cifar-quick"] == (quick.lr, quick.muon_lr)
    errors = found["errors"]
    gain = np.mean(errors["new"]) - np.mean(errors["from weights"])
    assert found["gains"]["new"]["mean"] == pytest.approx(gain)
    assert transfer.compare(args) == found  # finished runs are not trained again
    with pytest.raises(resnets.UserError, match="unknown network 'gone'"):
        transfer.compare(argparse.Namespace(**{**vars(args), "weights": "gone"}))


def test_the_page_shows_it_or_says_how_to_get_it(tmp_path):
    page = "<!-- results: transfer -->\n<!-- end -->"
    assert "python -m benchmarks.transfer" in fill_page(page, tmp_path)
    (tmp_path / "transfer").mkdir()
    (tmp_path / "transfer" / "a.json").write_text(
        '{"network": {"name": "n"}, "data": {"name": "d", "training_images": 1000}, "steps": 9, '
        '"weights": {"name": "w"}, "errors": {"from weights": [1, 3], "new": [4, 6]}, '
        '"gains": {"new": {"mean": 3, "bound_95": 0.5}}}'
    )
    shown = fill_page(page, tmp_path)
    assert "| [n](../results/transfer/a.json) | d, 1,000 in 9 steps | w | median 2.00 %" in shown
    assert "| new | median 5.00 % (5.00 +- 1.41, 2 runs) | 3.00 +- 0.50 points |" in shown
