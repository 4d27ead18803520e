"""`load`: one resolver for names, files of every known library, runs and paths."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import resnets
from resnets.weights.compare import find_differing_fields
from resnets.weights.layouts import layout_of, recognise
from resnets.weights.networks import to_peer
from resnets.weights.recognition import infer_spec

CIFAR = [f"resnet{depth}" for depth in (20, 32, 44, 56, 110, 1202)]
IMAGENET = [f"resnet{depth}" for depth in (18, 34, 50, 101, 152, 200)]
PRE = [f"preresnet{depth}" for depth in (18, 34, 50, 101, 152, 200)]
FILES = [
    *(("akamaster", name, {"resize": "pad_both"}) for name in CIFAR),
    *(("chenyaofo", name, {"resize": "project"}) for name in CIFAR),
    *(("torchvision", name, {"stride_on": "3x3"}) for name in IMAGENET),
    *(("timm", name, {"stem_activation": False, "stride_on": "3x3"}) for name in PRE),
]


@pytest.mark.parametrize(("library", "name", "changes"), FILES, ids=[f"{f[0]}-{f[1]}" for f in FILES])
def test_the_network_is_found_from_names_and_shapes(library, name, changes):
    net = resnets.create(name, device="meta", num_classes=7, **changes)
    layout = layout_of(library, net.spec)
    names = layout.names(net.spec, net.state_dict())
    tensors = {
        names[ours]: tensor.reshape(layout.shape(ours, tensor.shape)) for ours, tensor in net.state_dict().items()
    }
    assert recognise(tensors) is layout
    assert infer_spec(tensors, layout, "file") == net.spec


@pytest.mark.parametrize(
    ("library", "name", "changes"),
    [
        ("akamaster", "resnet20", {"resize": "pad_both", "widths": (4, 8, 8)}),
        ("chenyaofo", "resnet20", {"resize": "project", "widths": (4, 8, 8), "num_classes": 100}),
        ("torchvision", "resnet18", {"widths": (4, 8, 8, 16), "num_classes": 5}),
        ("timm", "preresnet50", {"stem_activation": False, "stride_on": "3x3", "widths": (4, 8, 8, 16), "blocks": 1}),
    ],
)
def test_a_file_of_another_library_needs_no_network(tmp_path, library, name, changes):
    net = resnets.create(name, seed=1, **changes).eval()
    torch.save(to_peer(net, library), tmp_path / "theirs.pth")
    found = resnets.load(tmp_path / "theirs.pth").eval()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found(x), net(x))
    assert find_differing_fields(found.spec, net.spec) == []
    assert str(resnets.load(str(tmp_path / "theirs.pth")).spec) == str(found.spec)


def test_chenyaofo_normalisation_follows_the_classes(tmp_path):
    for classes, mean in ((10, (0.4914, 0.4822, 0.4465)), (100, (0.507, 0.4865, 0.4409))):
        net = resnets.create("resnet20", resize="project", num_classes=classes, seed=0)
        torch.save(to_peer(net, "chenyaofo"), tmp_path / "theirs.pt")
        assert resnets.load(tmp_path / "theirs.pt").metadata.preprocessing.mean == mean


def test_a_wrong_network_is_answered_with_what_differs(tmp_path):
    net = resnets.create("resnet20", resize="pad_both", seed=0)
    torch.save(to_peer(net, "akamaster"), tmp_path / "theirs.th")
    with pytest.raises(
        resnets.UserError, match=r"holds a network with blocks=\(3, 3, 3\) \(resnet20\), and resnet56 has"
    ):
        resnets.load(tmp_path / "theirs.th", network="resnet56")


def test_grouped_and_wide_networks_are_named_as_such(tmp_path):
    state = to_peer(resnets.create("resnet50", seed=0), "torchvision")
    grouped = {**state, "layer1.0.conv2.weight": state["layer1.0.conv2.weight"][:, :2].clone()}
    torch.save(grouped, tmp_path / "resnext.pth")
    with pytest.raises(resnets.UserError, match="32 groups"):
        resnets.load(tmp_path / "resnext.pth")
    shapes = {1: (128, 64, 1, 1), 2: (128, 128, 3, 3), 3: (256, 128, 1, 1)}
    wide = {**state, **{f"layer1.0.conv{k}.weight": torch.zeros(shape) for k, shape in shapes.items()}}
    torch.save(wide, tmp_path / "wide.pth")
    with pytest.raises(resnets.UserError, match="wide network"):
        resnets.load(tmp_path / "wide.pth")


def test_a_pretrained_name_knows_its_classes_and_its_transform():
    net = resnets.load("preresnet20.cifar10")
    assert net.classes[:2] == ("airplane", "automobile")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 40, 3), np.uint8))
    x = net.transform(picture)
    assert (x.shape, x.dtype) == ((3, 32, 32), torch.float32)
    found = resnets.predict(net, [picture], engine="plain")[0]
    scores = net.eval()(x[None]).softmax(1)[0].detach()
    assert found.labels[0] == int(scores.argmax())
    assert found.probabilities[0] == pytest.approx(float(scores.max()), rel=1e-4)
    assert found.classes[0] == net.classes[found.labels[0]]


def test_a_new_classifier_keeps_the_rest():
    old, new = resnets.load("preresnet20.cifar10"), resnets.load("preresnet20.cifar10", num_classes=5)
    assert (new.spec.num_classes, new.classes) == (5, ())
    assert "a new classifier for 5 classes" in new.metadata.origin
    for name, tensor in new.state_dict().items():
        if not name.startswith("classifier"):
            assert torch.equal(tensor, old.state_dict()[name]), name
    assert torch.equal(new.classifier.weight, resnets.load("preresnet20.cifar10", num_classes=5).classifier.weight)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("preresnet20", "preresnet20 is a network without weights; name trained weights: preresnet20.cifar10"),
        ("resnet1202", "resnet1202 is a network without weights; name a file of weights or a run"),
        ("preresnet2O", "did you mean .*preresnet20"),
        ("absent.pth", "there is no file absent.pth"),
        (Path("some") / "absent.pth", "there is no file some/absent.pth"),
        ("resnet99.cifar10", "there is no pretrained 'resnet99.cifar10'"),
    ],
)
def test_words_that_name_no_weights(word, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(resnets.UserError, match=sentence):
        resnets.load(word)


def test_what_was_loaded_is_saved_with_its_classes(tmp_path):
    net = resnets.load("preresnet20.cifar10")
    resnets.save_weights(net, tmp_path / "again.safetensors")
    again = resnets.load(tmp_path / "again.safetensors")
    assert (again.classes, again.metadata.preprocessing) == (net.classes, net.metadata.preprocessing)
