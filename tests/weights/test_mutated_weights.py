"""Two thousand mutated packages, class files and headers: each is read or refused in one sentence."""

import gzip
import io
import json
import random
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import keras_graph

import resnets
from resnets.chain import parse_network
from resnets.metadata import Metadata, Preprocessing
from resnets.metadata import parse_metadata as about
from resnets.weights.classes import read_classes
from resnets.weights.keras import load_keras
from tools.torture.mutation import mutate

FILES = 300
VALUES = (None, 0, -1, 1e400, 10**40, "", "x", [], {}, [None], [[]], True, 2.5, "../../x", "\0", "\ud800")
SPEC = resnets.spec_of("resnet20", num_classes=3)
CHAIN = resnets.spec_of("googlenet", num_classes=3)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")
    keras_graph.Maker().write(root / "package" / "ResNet50")
    return root / "package"


def changed(value, draw):
    """The JSON value with one of its parts replaced or taken out."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        return {**value, key: changed(value[key], draw)} if draw.random() < 0.9 else _without(value, key)
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], changed(value[at], draw), *value[at + 1 :]]
    return draw.choice(VALUES)


def _without(value, key):
    return {k: v for k, v in value.items() if k != key}


def refused(function, *arguments):
    """Whether it is refused, and then in one sentence."""
    try:
        function(*arguments)
    except resnets.UserError as error:
        told = str(error)
    else:
        return False
    assert told
    assert "\n" not in told
    return True


def test_mutated_descriptions(package):
    path = package / "ResNet50" / "model.json"
    model, draw = json.loads(path.read_text()), random.Random(0)
    try:
        for _ in range(FILES):
            path.write_text(json.dumps(changed(model, draw)))
            refused(load_keras, package)
    finally:
        path.write_text(json.dumps(model))
    assert not refused(load_keras, package)


def test_mutated_archives(package, tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(package / "ResNet50" / "model.json", "package/ResNet50/model.json")
    draw, count = random.Random(1), 0
    for k in range(FILES):
        packed = (
            mutate(gzip.compress(data.getvalue(), 1), draw)
            if k % 2
            else gzip.compress(mutate(data.getvalue(), draw), 1)
        )
        (tmp_path / "p.tgz").write_bytes(packed)
        count += refused(load_keras, tmp_path / "p.tgz")
    assert count == FILES  # the weights are missing in all of them


def test_mutated_class_files():
    draw = random.Random(2)
    kinds = [["a", "b", "c"], {"0": ["n0", "a"], "1": ["n1", "b"], "2": ["n2", "c"]}]
    seen = set()
    for _ in range(FILES):
        text = json.dumps(changed(draw.choice(kinds), draw)).encode()
        seen.add(refused(read_classes, text, 3, "here"))
        refused(read_classes, mutate(text, draw), 3, "here")
    assert seen == {True, False}
    assert refused(read_classes, b'"abc"', 3, "here")
    assert refused(read_classes, b"[" * 100_000, 3, "here")


def test_mutated_headers():
    said = Metadata(("a", "b", "c"), (), Preprocessing((0.1,) * 3, (0.2,) * 3), provenance={"source": "x"})
    whole = {"run": {"data": {"name": "cifar10", "digest": "d"}}} | {
        key: json.loads(value) for key, value in said.to_metadata().items()
    }
    draw, seen = random.Random(3), set()
    for _ in range(FILES):
        key = draw.choice(list(whole))
        metadata = {name: json.dumps(value) for name, value in {**whole, key: changed(whole[key], draw)}.items()}
        seen.add(refused(about, metadata, SPEC, "here"))
    assert seen == {True, False}


@pytest.mark.parametrize("key", ["classes", "folders", "preprocessing", "provenance", "run"])
def test_deep_nesting_is_refused(key):
    assert refused(about, {key: "[" * 100_000}, SPEC, "here")


@pytest.mark.parametrize("crop", ["1e400", "12000", "32.5", '"32"', "true", "-1", "1" + "0" * 400])
def test_a_crop_that_no_picture_can_have_is_refused(crop):
    given = '{"mean": [0, 0, 0], "std": [1, 1, 1], "crop": %s, "resize": 12000}' % crop  # noqa: UP031
    assert refused(about, {"preprocessing": given}, SPEC, "here")
    given = '{"mean": [0, 0, 1e400], "std": [1, 1, 1]}'
    assert refused(about, {"preprocessing": given}, SPEC, "here")


def test_mutated_descriptions_of_other_systems_are_read_or_refused():
    """Rows, numbers and keys of a chain, replaced or taken out."""
    draw = random.Random(0)
    found = [refused(parse_network, changed(CHAIN.to_dict(), draw)) for _ in range(FILES)]
    assert sum(found) > FILES // 2
