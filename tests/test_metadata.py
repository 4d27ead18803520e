"""What a weights file says about itself survives the file, and a damaged header is told in a sentence."""

import json

import pytest

import resnets
from resnets.metadata import IMAGENET_MEAN_STD, Metadata, Preprocessing
from resnets.metadata import parse_metadata as about
from resnets.weights.files import read_metadata

SPEC = resnets.spec_of("resnet20", num_classes=3)


def test_everything_is_read_back(tmp_path):
    said = Metadata(
        ("a", "b", "c"),
        ("n1", "n2", "n3"),
        Preprocessing((0.1,) * 3, (0.2,) * 3, crop=28, resize=30),
        provenance={"source": "x"},
    )
    resnets.save_weights(
        resnets.create("resnet20", num_classes=3), tmp_path / "a.safetensors", metadata=said.to_metadata()
    )
    assert about(read_metadata(tmp_path / "a.safetensors"), SPEC, "a") == said


def test_older_files_say_less():
    assert about({}, SPEC, "a") == Metadata()
    run = {
        "preprocessing": json.dumps({"normalize": "pixel", "mean": [0.5] * 3, "std": [0.2] * 3}),
        "run": json.dumps({"data": {"name": "cifar10", "digest": "d"}}),
    }
    found = about(run, SPEC, "a")
    assert found.preprocessing == Preprocessing((0.5,) * 3, (0.2,) * 3, "pixel", 32, 32)
    assert (found.data, found.digest) == ("cifar10", "d")


def test_other_systems_have_crops_of_their_own_size():
    found = Preprocessing.usual(resnets.spec_of("inception_v3"))
    assert (found.crop, found.resize) == (299, 342)
    assert Preprocessing.usual(resnets.spec_of("nin")).crop == 32
    chain = resnets.spec_of("nin", num_classes=3)
    assert about({"classes": '["a", "b", "c"]'}, chain, "a").classes == ("a", "b", "c")
    with pytest.raises(resnets.UserError, match="a has metadata that cannot be read"):
        about({"classes": '["a"]'}, chain, "a")


def test_the_usual_crops_are_the_papers():
    large = Preprocessing.usual(resnets.spec_of("resnet50"))
    assert (large.crop, large.resize, (large.mean, large.std)) == (224, 256, IMAGENET_MEAN_STD)


@pytest.mark.parametrize(
    "metadata",
    [
        {"classes": "["},
        {"classes": '["a"]'},
        {"classes": "[1, 2, 3]"},
        {"classes": '{"a": 1}'},
        {"preprocessing": "[1]"},
        {"preprocessing": '{"mean": [0, 0, 0]}'},
        {"preprocessing": '{"mean": [0, 0, 0], "std": [1, 0, 1]}'},
        {"preprocessing": '{"mean": [0, 0], "std": [1, 1]}'},
        {"preprocessing": '{"mean": [0, 0, 0], "std": [1, 1, 1], "crop": 40}'},
        {"preprocessing": '{"mean": "abc", "std": [1, 1, 1]}'},
        {"run": '{"data": [1]}'},
    ],
)
def test_a_damaged_header_is_told(metadata):
    with pytest.raises(resnets.UserError, match=r"here\.safetensors has metadata that cannot be read"):
        about(metadata, SPEC, "here.safetensors")
