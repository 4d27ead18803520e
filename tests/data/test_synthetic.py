import numpy as np
import pytest
import torch

from resnets.counter_rng import order
from resnets.data import load
from resnets.data.augment import Augment, Normalize
from resnets.data.synthetic import synthetic
from resnets.errors import UserError


def test_counts_and_classes():
    images = load("synthetic")
    assert images.train_images.shape == (2048, 3, 32, 32)
    assert images.test_images.shape == (512, 3, 32, 32)
    assert images.num_classes == len(set(images.classes)) == 10
    assert np.ptp(np.bincount(images.train_labels)) <= 1
    assert images.name == "synthetic"
    pixels = images.train_images / 255
    assert images.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-4)
    assert images.std == pytest.approx(pixels.std((0, 2, 3)), abs=1e-4)


def test_an_image_depends_on_the_seed_and_its_index_only():
    small, large, other = synthetic(100), synthetic(400), synthetic(100, seed=1)
    assert np.array_equal(small.train_images, large.train_images[:100])
    assert np.array_equal(small.test_images, large.test_images[:25])
    assert small.digest == synthetic(100).digest
    assert len({small.digest, large.digest, other.digest}) == 3
    assert not (small.train_images[:25] == small.test_images).all((1, 2, 3)).any()
    assert len(np.unique(large.train_images.reshape(400, -1), axis=0)) == 400


def test_the_images_will_not_change_with_a_library():
    assert synthetic(64).digest == "12273490fd585b4006ec8138a3b2e390317f9cf19d27a91ac4b3685a36e9230c"


def accuracy(net, normalize, images):
    net.eval()
    with torch.no_grad():
        guess = net(normalize(torch.from_numpy(images.test_images))).argmax(1).numpy()
    return (guess == images.test_labels).mean()


def train(net, normalize, see, images, *, epochs, rate):
    pixels, labels = torch.from_numpy(images.train_images), torch.from_numpy(images.train_labels)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = rate * (1 - epoch / epochs)
        for index in torch.from_numpy(order(len(labels), 0, epoch)).split(64):
            loss = torch.nn.functional.cross_entropy(
                net(see(pixels.index_select(0, index), index, epoch)), labels[index]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return accuracy(net, normalize, images)


def test_it_is_learned_by_a_small_net_and_not_by_a_linear_one():
    torch.manual_seed(0)
    images = load("synthetic:1024")
    normalize = Normalize.of(images)
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    layers = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [
            torch.nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False),
            torch.nn.BatchNorm2d(outputs),
            torch.nn.ReLU(),
        ]
    small = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10))
    assert train(linear, normalize, lambda x, i, e: normalize(x), images, epochs=20, rate=0.003) < 0.3
    assert train(small, normalize, Augment(normalize, seed=0), images, epochs=20, rate=0.1) > 0.55


@pytest.mark.parametrize("n", [39, 100_001, 64.0, True])
def test_refuses_other_sizes(n):
    with pytest.raises(UserError, match="40 to 100000"):
        synthetic(n)


@pytest.mark.parametrize("spec", ["synthetic:", "synthetic:x", "synthetic:-5", "synthetic:2.5", "synthetic:٣"])
def test_refuses_other_words(spec):
    with pytest.raises(UserError, match="write synthetic:N"):
        load(spec)


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("cifar", "cifar10"),
        ("CIFAR100", "cifar100"),
        ("sythetic", "synthetic"),
        ("mnist", "give a folder with a subfolder for each class"),
    ],
)
def test_unknown_data(spec, near):
    with pytest.raises(UserError, match=near):
        load(spec)


def test_importing_the_room_does_not_import_torch():
    import subprocess
    import sys

    code = "import sys, resnets.data as d; d.load('synthetic:64'); print('torch' in sys.modules, 'rich' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]
