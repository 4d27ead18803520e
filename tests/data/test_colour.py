"""Colours of batches against the same written out for one image in float64."""

import math

import numpy as np
import torch

from pictures import decode, photographs
from resnets.counter_rng import draws, uniform
from resnets.data.colour import AXES, LUMA, VARIANCES, jitter, lighting

SEED, EPOCH = 5, 7


def test_lighting_is_normal_along_the_axes():
    """A hundred thousand draws have the covariance that AlexNet's formula says."""
    shift = lighting(0.1, SEED, EPOCH, np.arange(100_000)).double().numpy()
    assert np.abs(shift.mean(0)).max() < 3e-4
    wanted = AXES @ np.diag((0.1 * VARIANCES) ** 2) @ AXES.T
    assert np.allclose(np.cov(shift.T), wanted, rtol=0.03, atol=2e-6)
    along = shift @ AXES[:, 0] / (0.1 * VARIANCES[0])
    assert 2.8 < (along**4).mean() < 3.2  # as a normal one's


def test_the_axes_are_those_of_photographs():
    assert np.allclose(AXES.T @ AXES, np.eye(3), atol=1e-3)
    pixels = np.concatenate([decode(data)[::8, ::8].reshape(-1, 3) for data in photographs(100)]) / 255
    values, vectors = np.linalg.eigh(np.cov(pixels.T))
    assert abs(vectors[:, -1] @ AXES[:, 0]) > 0.99
    assert np.allclose(values[::-1], VARIANCES, rtol=0.5)


def slow_jitter(image, strength, index):
    """One image (3, H, W)."""
    u = uniform(draws("jitter", SEED, EPOCH, index * 4 + np.arange(4)))
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    for step in orders[int(u[3] * 6)]:
        factor = 1 - strength + 2 * strength * u[step]
        grey = sum(weight * channel for weight, channel in zip(LUMA, image, strict=True))
        toward = (np.zeros(()), np.full((), grey.mean()), grey)[step]
        image = np.stack([factor * channel + (1 - factor) * toward for channel in image])
    return image


def test_jitter_is_that_of_each_image_alone():
    images = torch.rand(24, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    index = np.arange(24) * 3 + 1
    found = jitter(images, 0.4, SEED, EPOCH, index)
    for image, out, i in zip(images.double().numpy(), found.numpy(), index, strict=True):
        assert np.allclose(out, slow_jitter(image, 0.4, i), atol=1e-5)
    assert torch.equal(jitter(images[3:5], 0.4, SEED, EPOCH, index[3:5]), found[3:5])
    assert torch.allclose(jitter(images, 0.0, SEED, EPOCH, index), images, atol=1e-6)
    assert not math.isclose(float(found.mean()), float(images.mean()), abs_tol=1e-5)
