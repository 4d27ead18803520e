"""Crops and mirror images against a slow reference, one image and one pixel row at a time."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from test_draws import reference

from resnets.data import load
from resnets.data.augment import Augment, Normalize
from resnets.data.batch_order import BatchOrder
from resnets.errors import UserError

QUICK = settings(deadline=None, database=None, max_examples=40)
DATA = load("synthetic:300")
TRAIN = torch.from_numpy(DATA.train_images)
NORMALIZE = Normalize.of(DATA)
INDEX = torch.arange(300)


def flipped(augment, index, epoch):
    if augment.flip == "none":
        return False
    if augment.flip == "alternate":
        return (reference("phase", augment.seed, 0, index) + epoch) % 2 == 1
    return reference("augment", augment.seed, epoch, index) % 2 == 1


def slow(augment, image, index, epoch):
    """One image, step by step as the papers say it, in float64."""
    mean, std = augment.normalize.mean.double().numpy(), augment.normalize.std.double().numpy()
    x = (image.numpy() / 255 - mean) / std
    pad = augment.pad
    if augment.size:
        pad = int(pad * augment.size / x.shape[-1] + 0.5)
        x = F.interpolate(torch.from_numpy(x)[None], augment.size, mode="bilinear", antialias=True)[0].numpy()
    if flipped(augment, index, epoch):
        x = x[:, :, ::-1]
    offsets = 2 * pad + 1
    drawn = (reference("augment", augment.seed, epoch, index) >> 32) * offsets**2 >> 32
    top, left = divmod(drawn, offsets)
    padded = np.zeros((x.shape[0], x.shape[1] + 2 * pad, x.shape[2] + 2 * pad))
    padded[:, pad : pad + x.shape[1], pad : pad + x.shape[2]] = x
    return padded[:, top : top + x.shape[1], left : left + x.shape[2]]


@given(
    seed=st.integers(0, 2**62),
    epoch=st.integers(0, 500),
    pad=st.integers(0, 6),
    flip=st.sampled_from(["random", "alternate", "none"]),
    size=st.sampled_from([None, 16, 24, 20, 32, 40]),
    per=st.sampled_from(["channel", "pixel"]),
    index=st.lists(st.integers(0, 299), min_size=1, max_size=8),
)
@QUICK
def test_equals_the_slow_reference(*, seed, epoch, pad, flip, size, per, index):
    augment = Augment(Normalize.of(DATA, per), seed, pad, flip, size)
    found = augment(TRAIN[index], torch.tensor(index), epoch)
    assert found.dtype == torch.float32
    error = 2e-6 if size is None else 3e-5  # float32 weights of the interpolation
    for image, i in zip(found.numpy(), index, strict=True):
        np.testing.assert_allclose(image, slow(augment, TRAIN[i], i, epoch), atol=error)


@given(
    st.permutations(range(60)),
    st.integers(1, 60),
    st.sampled_from([None, 24]),
    st.sampled_from(["random", "alternate"]),
)
@QUICK
def test_does_not_depend_on_the_batch(order, size_of_batch, size, flip):
    augment = Augment(NORMALIZE, seed=5, flip=flip, size=size)
    whole = augment(TRAIN[:60], INDEX[:60], 3)
    for index in torch.tensor(order).split(size_of_batch):
        assert torch.equal(augment(TRAIN[index], index, 3), whole[index])


def test_does_not_depend_on_restarts_or_processes():
    """Two ranks that start in the middle of an epoch see what one process sees there."""
    augment = Augment(NORMALIZE, seed=5)

    def run(step, share=slice(None)):
        pieces = BatchOrder(300, 64, seed=5).batch(step, share)
        return torch.cat([augment(TRAIN.index_select(0, index), index, epoch) for epoch, index in pieces])

    for step in range(10):
        halves = [run(step, slice(0, 32)), run(step, slice(32, 64))]
        assert torch.equal(torch.cat(halves), run(step))


def recognise(x, pad, image):
    """The offset and the flip that make `image` into x, found by trying all."""
    for mirror in (False, True):
        padded = F.pad(image.flip(-1) if mirror else image, (pad,) * 4)
        for top in range(2 * pad + 1):
            for left in range(2 * pad + 1):
                if torch.equal(padded[:, top : top + 32, left : left + 32], x):
                    return top, left, mirror
    raise AssertionError("not a crop of the image")


def test_all_81_offsets_and_both_flips_occur_evenly():
    augment = Augment(NORMALIZE, seed=1)
    plain = NORMALIZE(TRAIN)
    counts = np.zeros((9, 9, 2))
    for epoch in range(27):
        for image, x in zip(plain, augment(TRAIN, INDEX, epoch), strict=True):
            top, left, mirror = recognise(x, 4, image)
            counts[top, left, int(mirror)] += 1
    expected = counts.sum() / 162  # 50
    assert counts.min() > 0
    assert ((counts - expected) ** 2 / expected).sum() < 161 + 5 * np.sqrt(2 * 161)
    assert abs(counts[:, :, 1].sum() / counts.sum() - 0.5) < 0.03


def test_alternate_flips_each_image_every_other_epoch():
    augment = Augment(NORMALIZE, seed=1, pad=0, flip="alternate")
    plain = NORMALIZE(TRAIN)
    epochs = [augment(TRAIN, INDEX, epoch) for epoch in range(4)]
    first = torch.tensor([torch.equal(a, b) for a, b in zip(epochs[0], plain, strict=True)])
    assert 110 < first.sum() < 190  # of 300, standard deviation 9
    assert torch.equal(epochs[1], epochs[0].flip(-1))
    assert torch.equal(epochs[2], epochs[0])
    assert torch.equal(epochs[3], epochs[1])


def test_the_border_is_the_mean_colour():
    """A black image has a border of zeros, not of black: padding comes after normalisation."""
    black = torch.zeros(200, 3, 32, 32, dtype=torch.uint8)
    found = Augment(NORMALIZE, seed=0)(black, torch.arange(200), 0)
    inside = -(NORMALIZE.mean / NORMALIZE.std)
    assert ((found == 0) | torch.isclose(found, inside)).all()
    assert (found == 0).any()


def test_normalize_gives_mean_0_and_deviation_1():
    x = NORMALIZE(TRAIN)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=2e-3, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3), atol=2e-3, rtol=0)


def test_normalize_per_pixel_subtracts_the_mean_image():
    x = Normalize.of(DATA, "pixel")(TRAIN)
    torch.testing.assert_close(x.mean(0), torch.zeros(3, 32, 32), atol=1e-5, rtol=0)
    torch.testing.assert_close(x + TRAIN.float().mean(0) / 255, TRAIN.float() / 255)


def test_other_channels_and_shapes():
    images = torch.randint(256, (5, 1, 20, 28), dtype=torch.uint8)
    augment = Augment(Normalize(torch.full((1, 1, 1), 0.5), torch.ones(1, 1, 1)), seed=0, pad=2)
    assert augment(images, torch.arange(5), 0).shape == (5, 1, 20, 28)
    for image, i in zip(augment(images, torch.arange(5), 0).numpy(), range(5), strict=True):
        np.testing.assert_allclose(image, slow(augment, images[i], i, 0), atol=1e-6)


@pytest.mark.parametrize("size", [None, 24])
def test_any_memory_format_and_an_empty_batch(size):
    augment = Augment(NORMALIZE, seed=0, size=size)
    turned = TRAIN.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(augment(turned, INDEX, 0), augment(TRAIN, INDEX, 0))
    assert augment(TRAIN[:0], INDEX[:0], 0).shape == (0, 3, size or 32, size or 32)


def test_sizes_shrink_the_image_and_its_padding():
    augment = dataclasses.replace(Augment(NORMALIZE, seed=0, flip="none"), size=24)
    white = torch.full((500, 3, 32, 32), 255, dtype=torch.uint8)
    found = augment(white, torch.arange(500), 0)
    assert found.shape == (500, 3, 24, 24)
    inside = (found[:, 0] != 0).sum((1, 2))
    assert inside.min() == 21 * 21  # three of 24 at each side, as four of 32
    assert inside.max() == 24 * 24


def test_the_images_are_not_changed():
    before = TRAIN.clone()
    Augment(NORMALIZE, seed=0)(TRAIN, INDEX, 0)
    NORMALIZE(TRAIN)
    assert torch.equal(TRAIN, before)


@pytest.mark.parametrize("changes", [{"flip": "vertical"}, {"pad": -1}, {"pad": 1.5}, {"size": 0}, {"size": 24.0}])
def test_augment_refuses(changes):
    with pytest.raises(UserError, match=next(iter(changes))):
        Augment(NORMALIZE, seed=0, **changes)


def test_wrong_batches_are_refused():
    with pytest.raises(UserError, match="must be uint8"):
        NORMALIZE(TRAIN.float())
    with pytest.raises(UserError, match="there are 2 images and 3 indices"):
        Augment(NORMALIZE, seed=0)(TRAIN[:2], INDEX[:3], 0)
    with pytest.raises(UserError, match="normalisation"):
        Normalize.of(DATA, "image")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("size", [None, 24])
def test_a_gpu_gives_the_same(size):
    augment = Augment(NORMALIZE, seed=0, size=size)
    there = dataclasses.replace(augment, normalize=NORMALIZE.to("cuda"))
    torch.testing.assert_close(there(TRAIN.cuda(), INDEX, 0).cpu(), augment(TRAIN, INDEX, 0))


@pytest.mark.parametrize("cached", [1, 31, 1 << 18])
def test_normalising_is_the_same_in_every_memory_layout(cached, monkeypatch):
    """In pieces of one row, of two rows, and at once."""
    monkeypatch.setattr("resnets.data.augment._CACHED", cached)
    images = torch.randint(256, (3, 3, 6, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    normalize = Normalize.by_channel((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
    out = normalize(images.contiguous(memory_format=torch.channels_last))
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(out, normalize(images))
    wanted = (images.double() / 255 - normalize.mean.double()) / normalize.std.double()
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-6)
