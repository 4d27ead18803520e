"""Any nn.Module on any data set: `resnets.train(my_module, data=(train_set, test_set), ...)`."""

import os
import signal

import numpy as np
import pytest
import tiny
import torch
from torch import nn

import resnets
from resnets import runs
from resnets.data.batch_order import BatchOrder
from resnets.data.datasets import Datasets
from resnets.errors import UserError
from resnets.recipe import Recipe
from resnets.training.loop import Trainer
from resnets.training.session import TrainedRun, train
from resnets.weights.files import read_metadata

RECIPE = Recipe("mine", length="8it", batch=12, lr=0.05, schedule="constant", milestones="", warmup="0it")
OPTIONS = {"recipe": RECIPE, "quiet": True, "log_every": 2, "checkpoint_every": 0}


class Points(torch.utils.data.Dataset):
    """Noisy images of a channel, whose mean says the class; the noise is new each time that an item is read."""

    def __init__(self, count, start=0, noise=0.5):
        self.count, self.start, self.noise, self.read = count, start, noise, []

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.read.append(i)
        label = (i + self.start) % 3
        return torch.full((1, 6, 6), float(label)) + self.noise * torch.randn(1, 6, 6), label


class Mine(nn.Module):
    def __init__(self, seed=0):
        torch.manual_seed(seed)
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.layers(x))


def data():
    return Points(40), Points(15, start=1)


def test_a_module_of_the_users_is_trained_on_data_sets_of_the_users(tmp_path):
    module = Mine()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    run = train(module, data=data(), out=tmp_path, **{**OPTIONS, "recipe": RECIPE}, epochs=30)
    assert run.path.name.startswith("Mine-Points-mine-s0-")
    assert run.result["test"]["images"] == 15
    assert run.result["test"]["error"] < 20, "it has learned the classes"
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items()), "a copy is trained"
    assert not run.model.training
    x = torch.stack([torch.full((1, 6, 6), float(label)) for label in range(3)])
    assert run.model(x).argmax(1).tolist() == [0, 1, 2]
    assert read_metadata(run.weights)["module"] == "Mine"
    mine = Mine(seed=1)
    mine.load_state_dict(tiny.weights(run))
    assert torch.equal(mine.eval()(x), run.model(x))


def test_the_run_is_found_again_and_without_the_module_its_model_says_what_to_do(tmp_path):
    run = train(Mine(), data=data(), out=tmp_path, **OPTIONS)
    assert train(Mine(), data=data(), out=tmp_path, **OPTIONS).path == run.path
    assert train(Mine(seed=1), data=data(), out=tmp_path, **OPTIONS).path != run.path, "other weights, another run"
    other = Points(40), Points(15, start=2)
    assert train(Mine(), data=other, out=tmp_path, **OPTIONS).path != run.path, "other data, another run"
    with pytest.raises(UserError, match="holds the state dict of a Mine, a module of yours: build it"):
        _ = TrainedRun(run.path).model
    with pytest.raises(UserError, match="a run of Mine, a module of yours, has no network that resnets can build"):
        _ = run.identity.spec


def test_a_stopped_training_resumes_with_the_same_bytes_although_the_data_draws(tmp_path, monkeypatch):
    whole = train(Mine(), data=data(), out=tmp_path / "whole", validation=6, **OPTIONS)
    step = Trainer.step

    def stopping(self, i):
        if i == 4:
            os.kill(os.getpid(), signal.SIGINT)
        step(self, i)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(Mine(), data=data(), out=tmp_path / "cut", validation=6, **OPTIONS)
    assert runs.find(tmp_path / "cut")[0].result is None
    torch.rand(7)
    tiny.assert_same(whole, train(Mine(), data=data(), out=tmp_path / "cut", validation=6, **OPTIONS))


def test_items_come_in_the_order_of_seed_and_step(tmp_path):
    points = Points(40)
    recipe = {"recipe": RECIPE, "length": "2it", "precise_bn": 0}
    train(Mine(), data=points, out=tmp_path, quiet=True, seed=5, **recipe)
    order = BatchOrder(40, 12, 5)
    wanted = [int(i) for step in range(2) for _, index in order.batch(step) for i in index]
    assert points.read[-24:] == wanted


def test_items_need_not_be_images(tmp_path):
    class Vectors(Points):
        def __getitem__(self, i):
            return torch.eye(3)[i % 3].repeat(4) + 0.1 * torch.randn(12), i % 3

    torch.manual_seed(0)
    run = train(nn.Linear(12, 3), data=(Vectors(40), Vectors(12)), out=tmp_path, validation=6, epochs=20, **OPTIONS)
    assert run.result["test"]["wrong"] == 0
    assert run.identity.network.name == "Linear"


def test_a_network_of_the_package_can_be_given_as_a_module(tmp_path):
    net = resnets.create("preresnet20", **tiny.NETWORK, seed=3)
    run = tiny.train_tiny(tmp_path, model=net, network=None)
    named = tiny.train_tiny(tmp_path, seed=3)
    assert run.identity.spec == net.spec
    assert run.path != named.path, "its first weights are a part of the run"
    assert isinstance(run.model, resnets.ResNet)
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(run.model(x), resnets.load(run.weights).eval()(x))


def test_a_network_by_name_learns_from_data_sets(tmp_path):
    run = train("preresnet20", data=data(), out=tmp_path, widths=(4, 4, 4), blocks=1, **OPTIONS)
    assert (run.identity.spec.num_classes, run.identity.spec.in_channels) == (3, 1)


def test_labels_are_read_from_targets_where_a_data_set_has_them():
    points = Points(9)
    points.targets = torch.tensor([0, 1, 2] * 3)
    read = len(points.read)
    found = Datasets(points)
    assert found.labels.tolist() == [0, 1, 2] * 3
    assert len(points.read) <= read + 1
    assert np.array_equal(Datasets(Points(9)).labels, found.labels)


class Strings(Points):
    def __getitem__(self, i):
        return "image", 0


REFUSED = {
    "must be a map-style data set with items, not": {"data": 5},
    "item 0 of the data set must be a pair": {"data": Strings(3)},
    "not 3 of them": {"data": (Points(3), Points(3), Points(3))},
    "a module is trained as it is: leave out weights": {"data": Points(3), "weights": "x.safetensors"},
    "sizes do not apply to your own data sets": {"data": Points(30), "sizes": "16@0"},
    "freeze counts the stages": {"data": Points(30), "freeze": 1},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_trained_is_refused(tmp_path, words):
    with pytest.raises(UserError, match=words):
        train(Mine(), out=tmp_path, **OPTIONS, **REFUSED[words])
    assert not list(tmp_path.glob("*/config.json"))
