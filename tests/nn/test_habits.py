"""What users of other libraries expect of a network: maps of stages, a new classifier, its preprocessing."""

import numpy as np
import pytest
import torch
from PIL import Image

import peers
import resnets
from resnets.data.test_pictures import PictureViews
from resnets.detection.detector import build_detector
from resnets.detector_spec import detector_of
from resnets.engine import prepare
from resnets.evaluation.options import PredictOptions
from resnets.evaluation.predict import Predictor
from resnets.nn import build

SMALL = {"widths": (4, 4, 8, 8), "num_classes": 5}


def images(side, channels=3):
    return torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(0))


# --- stages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours", "changes"),
    [
        ("resnet18", "resnet18", {"stride_on": "3x3"}),
        ("resnet50", "resnet50", {"stride_on": "3x3"}),
        ("resnetv2_18", "preresnet18", {"stem_activation": False}),
    ],
)
def test_stages_are_timms_features(theirs, ours, changes, tmp_path):
    try:
        whole = peers.randomize(peers.build("timm", theirs, num_classes=7)).eval()
        part = peers.build("timm", theirs, features_only=True, out_indices=(1, 2, 3, 4)).eval()
    except ModuleNotFoundError as error:
        pytest.skip(f"timm is not installed ({error})")
    named = whole.state_dict()
    part.load_state_dict({name: named.get(name, named.get(name.replace("_", ".", 1))) for name in part.state_dict()})
    torch.save(whole.state_dict(), tmp_path / "theirs.pth")
    net = resnets.create(ours, num_classes=7, **changes).eval()
    resnets.load_weights(net, tmp_path / "theirs.pth")
    with torch.no_grad():
        for found, expected in zip(net.forward_stages(images(64)), part(images(64)), strict=True):
            assert found.shape == expected.shape
            assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("name", ["resnet18", "preresnet18", "plain34"])
def test_the_last_stage_gives_the_scores(name):
    net = resnets.create(name, seed=0, **SMALL).eval()
    *_, last = net.forward_stages(images(64))
    assert torch.equal(net.forward_head(net.last(last)), net(images(64)))


def test_stages_of_a_chain_are_its_sizes():
    net = resnets.create("nin", seed=0).eval()
    maps = net.forward_stages(images(32))
    assert [tuple(found.shape[1:]) for found in maps] == [(96, 32, 32), (192, 16, 16), (10, 8, 8)]
    x, expected = images(32), {}
    for layer in net.layers():  # what each pool reads
        if isinstance(layer, (torch.nn.MaxPool2d, torch.nn.AdaptiveAvgPool2d)):
            expected[x.shape[2]] = x
        x = layer(x)
    assert [*expected] == [32, 16, 8]
    assert torch.equal(maps[2], expected[8])
    assert torch.equal(maps[-1], net.forward_features(images(32)))
    assert torch.equal(maps[0], expected[32])


# --- a new classifier -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["preresnet20", "nin_bn", "dsn", "allcnn"])
def test_a_new_classifier_is_that_of_a_new_network(name, tmp_path):
    """The rest is kept, also where BN or auxiliary heads follow the number of classes."""
    net = peers.randomize(resnets.create(name, seed=1))
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    net.eval().reset_classifier(3, seed=7)
    assert net.spec == resnets.spec_of(name, num_classes=3)
    fresh = build(net.spec, seed=7).state_dict()
    for key, tensor in net.state_dict().items():
        kept = key in before and before[key].shape == tensor.shape and not key.startswith(tuple(net.class_modules))
        assert torch.equal(tensor, before[key] if kept else fresh[key])
    assert net(images(32)).shape == (2, 3)
    assert not any(module.training for module in net.modules())
    resnets.save_weights(net, tmp_path / "a.safetensors")
    assert torch.equal(resnets.load(tmp_path / "a.safetensors").eval()(images(32)), net(images(32)))


def test_load_with_other_classes_does_the_same(tmp_path):
    for name in ("preresnet20", "nin_bn"):
        net = peers.randomize(resnets.create(name, seed=1))
        resnets.save_weights(net, tmp_path / "a.safetensors")
        found = resnets.load(tmp_path / "a.safetensors", num_classes=3, seed=2)
        net.reset_classifier(3, seed=2)
        assert all(torch.equal(tensor, net.state_dict()[key]) for key, tensor in found.state_dict().items())


def test_classes_and_types_follow():
    net = resnets.load("preresnet20.cifar10", dtype=torch.float64)
    net.reset_classifier(4)
    assert net.classes == ()
    assert net.classifier.weight.dtype == torch.float64
    assert "with a new classifier for 4 classes" in net.metadata.origin
    with pytest.raises(resnets.UserError, match="num_classes"):
        net.reset_classifier(0)
    assert net.spec.num_classes == 4
    with pytest.raises(resnets.UserError, match="before the network is prepared"):
        prepare(resnets.create("preresnet20")).reset_classifier(3)


# --- preprocessing ----------------------------------------------------------------------------


def picture(width=70, height=50):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("name", ["preresnet20.cifar10", "resnet20.cifar10"])
def test_transform_is_what_predict_does(name):
    """To the bit, as a method and as a value."""
    net = resnets.load(name)
    predictor = Predictor(net, PredictOptions(engine="plain"))
    member = predictor.member
    (view,) = PictureViews(picture(), [member.views]).views[member.views]
    seen = member.transform.normalize(view[None])[0]
    transform = net.transform()
    assert torch.equal(transform(picture()), seen)
    assert torch.equal(net.transform(picture()), seen)
    (found,) = predictor.predict([picture()])
    with torch.no_grad():
        scores = net.eval()(transform(picture())[None]).softmax(1)[0]
    assert found.labels[0] == int(scores.argmax())


# --- detectors --------------------------------------------------------------------------------


def test_a_detector_answers_with_its_own():
    net = build_detector(detector_of("faster_rcnn_resnet18", network={"widths": (4, 4, 4, 4)}, num_classes=3))
    net.reset_classifier(2, seed=0)
    assert net.spec.num_classes == 2
    assert (net.classifier.out_features, net.regressor.out_features) == (3, 8)
    assert net.regressor.weight.detach().std() < 0.002 < net.classifier.weight.detach().std()
    with pytest.raises(resnets.UserError, match=r"net\.look"):
        net.forward_stages(images(64))
    with pytest.raises(resnets.UserError, match="is a detector"):
        net.transform()
