"""The real sets, where they are at hand; nothing is downloaded for a test."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from resnets.data.dataset_spec import RECORD
from resnets.data.fetch import fetch
from resnets.data.sets import DATASETS
from resnets.errors import UserError
from resnets.progress import Silent


@pytest.fixture(scope="session", params=DATASETS)
def real(request):
    known = DATASETS[request.param]
    offline = dataclasses.replace(known, npm="", download="file:///nonexistent/" + known.download.rsplit("/", 1)[-1])
    try:
        return known, fetch(offline, None, Silent()).images
    except UserError:
        pytest.skip(f"{known.title} is not here; `resnets data fetch {known.name}` gets it")


def test_shapes_and_classes(real):
    known, images = real
    assert torch.from_numpy(images.train_images).shape == images.train_images.shape  # without a warning
    assert images.train_images.shape == (known.counts[0], 3, 32, 32)
    assert images.test_images.shape == (10_000, 3, 32, 32)
    assert len(set(images.classes)) == images.num_classes == {"cifar100": 100}.get(known.name, 10)
    if known.name.startswith("cifar"):
        assert list(images.classes) == sorted(images.classes)
    assert set(np.bincount(images.train_labels)) == {known.counts[0] // images.num_classes}
    assert set(np.bincount(images.test_labels)) == {10_000 // images.num_classes}


def test_mean_and_std_are_those_of_the_training_pixels(real):
    known, images = real
    for channel in range(3):
        counts = np.bincount(images.train_images[:, channel].ravel(), minlength=256) / (known.counts[0] * 1024)
        values = np.arange(256) / 255
        mean = (counts * values).sum()
        std = np.sqrt((counts * (values - mean) ** 2).sum())
        assert images.mean[channel] == pytest.approx(mean, abs=6e-5)
        assert images.std[channel] == pytest.approx(std, abs=6e-5)


def test_in_official_order_the_batches_are_the_official_files(real):
    known, images = real
    if not known.batches or images.digest != known.official:
        pytest.skip(f"{known.title} has no such files, or came from a source that has lost the official order")
    rows = np.empty(60_000, RECORD)
    rows["image"] = np.concatenate([images.train_images, images.test_images])
    rows["label"] = np.concatenate([images.train_labels, images.test_labels])
    assert tuple(hashlib.md5(part.tobytes()).hexdigest() for part in np.split(rows, 6)) == known.batches
    assert [images.classes[k] for k in images.test_labels[:4]] == ["cat", "ship", "ship", "airplane"]


def test_a_subset_of_1000_has_most_classes(real):
    """Whatever the order of the source, the classes are mixed."""
    _, images = real
    assert len(np.unique(images.train_labels[:1000])) == images.num_classes
