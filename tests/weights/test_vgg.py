"""VGG-16's convolutions from torchvision's names and from a pickle of arrays, of which nothing is executed."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from resnets.detector_spec import VggSpec
from resnets.errors import UserError
from resnets.weights.vgg import list_names, read_vgg

SMALL = VggSpec(stages=((4, 4), (6,), (8, 8)))


def make_arrays(seed: int = 0) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    random = np.random.default_rng(seed)
    found = {}
    for i, (_, (into, out)) in enumerate(list_names(SMALL)):
        kernel = random.normal(size=(3, 3, into, out)).astype(np.float32)
        found[f"Conv_{i}"] = {"kernel": np.asfortranarray(kernel) if i else kernel, "bias": np.full(out, i, np.float32)}
    return {"VGG16_0": found, "NetLinLayer_0": {"Conv_0": {"kernel": np.ones((1, 1, 4, 1), np.float32)}}}


def write(path: Path, content: object) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=3))
    return path


def test_the_names_are_torchvisions():
    names = [name for name, _ in list_names(VggSpec())]
    assert names == [f"features.{i}" for i in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)]


def test_a_pickle_of_arrays(tmp_path):
    arrays = make_arrays()
    found = read_vgg(write(tmp_path / "vgg16.ckpt", arrays), SMALL)
    assert len(found) == 2 * len(list_names(SMALL))
    for i, (name, (into, out)) in enumerate(list_names(SMALL)):
        kernel = arrays["VGG16_0"][f"Conv_{i}"]["kernel"]
        assert found[f"{name}.weight"].shape == (out, into, 3, 3)
        assert torch.equal(found[f"{name}.weight"], torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()))
        assert (found[f"{name}.bias"] == i).all()


def test_a_state_dict_with_its_classifier(tmp_path):
    state = {
        f"{name}.{leaf}": torch.zeros(shape)
        for name, (into, out) in list_names(SMALL)
        for leaf, shape in (("weight", (out, into, 3, 3)), ("bias", (out,)))
    }
    torch.save({**state, "classifier.0.weight": torch.zeros(3, 3)}, tmp_path / "vgg.pth")
    assert read_vgg(tmp_path / "vgg.pth", SMALL).keys() == state.keys()
    for changes, words in (
        ({"features.99.weight": torch.zeros(1)}, "it has features.99.weight"),
        ({"features.0.bias": torch.full((4,), torch.nan)}, "must be finite numbers"),
        ({"features.0.bias": torch.zeros(5)}, r"of shape \(4,\), not \(5,\)"),
    ):
        torch.save({**state, **changes}, tmp_path / "wrong.pth")
        with pytest.raises(UserError, match=words):
            read_vgg(tmp_path / "wrong.pth", SMALL)
    del state["features.0.bias"]
    torch.save(state, tmp_path / "wrong.pth")
    with pytest.raises(UserError, match=r"lacks features.0.bias"):
        read_vgg(tmp_path / "wrong.pth", SMALL)


class Attack:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("attacked",)


def test_a_pickle_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in (
        {"VGG16_0": Attack()},
        {"VGG16_0": {"Conv_0": {"kernel": Attack(), "bias": Attack()}}},
    ):
        with pytest.raises(UserError, match="which arrays do not need"):
            read_vgg(write(tmp_path / "vgg16.ckpt", content), SMALL)
    assert not (tmp_path / "attacked").exists()


def test_other_pickles_are_refused(tmp_path):
    path = tmp_path / "vgg16.ckpt"
    for content, words in (
        ({"VGG16_0": {}}, "is not a pickle of VGG-16's arrays"),
        ({"VGG16_0": {"Conv_0": {"kernel": np.zeros(3), "bias": np.zeros(3)}}}, "not float32"),
    ):
        with pytest.raises(UserError, match=words):
            read_vgg(write(path, content), SMALL)
    good = pickle.dumps(make_arrays(), protocol=3)
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError, match="is not a pickle of VGG-16's arrays"):
        read_vgg(path, SMALL)
