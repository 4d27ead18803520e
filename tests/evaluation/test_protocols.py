"""The papers' protocols on real pictures, against plain slow references: pixel by pixel, and one view at a time."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import resnets
from resnets.cli import main
from resnets.data.test_crops import Crop, MultiScale, TenCrop, resize_shorter
from resnets.data.test_pictures import open_pictures
from resnets.data.transform import Transform
from resnets.engine.inference import Runner
from resnets.evaluation.ensemble import Member, probabilities
from resnets.metadata import Metadata, Preprocessing, parse_sides

SHARED = Path(os.environ.get("RESNETS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def member_of(net, normalize, views):
    return Member(Runner(torch.no_grad()(net), "plain", torch.device("cpu")), Transform(views, normalize))


@pytest.fixture(scope="module")
def pictures():
    """Real JPEGs of different shapes, made small."""
    tree = SHARED / "imagenet-val-200"
    if not tree.is_dir():
        pytest.skip(f"no real pictures: {tree} is not here")
    found = {}
    for path in sorted(tree.glob("*/*.JPEG")):
        picture = Image.open(path).convert("RGB")
        found.setdefault((picture.width > picture.height) - (picture.width < picture.height), picture)
        if len(found) == 3:
            break
    return [picture.resize((picture.width // 4, picture.height // 4)) for picture in found.values()]


@pytest.fixture(scope="module")
def net():
    return resnets.create("resnet18", widths=(4, 8, 8, 8), num_classes=7, seed=0).eval()


def normalize(x):
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    return (x.float() / 255 - mean) / std


def triangle(picture, size):
    """Scaling by a triangle as wide as the shrinking asks for, as sums over the pixels of one line after the other."""
    array = np.asarray(picture, np.float64)
    for axis, length in ((1, size[0]), (0, size[1])):  # across first and rounded to whole numbers between, as stored
        scale = array.shape[axis] / length
        reach = max(scale, 1.0)
        rows = []
        for i in range(length):
            middle = (i + 0.5) * scale
            weights = np.maximum(1 - np.abs(np.arange(array.shape[axis]) + 0.5 - middle) / reach, 0)
            rows.append(np.tensordot(weights / weights.sum(), array, (0, axis)))
        array = np.clip(np.round(np.stack(rows, axis)), 0, 255)
    return array


@pytest.mark.parametrize("shorter", [40, 64, 200])
def test_resizing_keeps_the_shape_and_is_a_triangle_filter(pictures, shorter):
    for picture in pictures:
        found = resize_shorter(picture, shorter)
        assert min(found.size) == shorter
        longer = max(picture.size) * shorter / min(picture.size)
        assert longer - 1 < max(found.size) <= longer or max(found.size) == shorter
        off = np.abs(np.asarray(found) - triangle(picture, found.size))
        assert off.max() <= 2  # ties may be rounded otherwise, in both directions
        assert off.mean() < 0.1


def slow_views(picture, kind, side, shorter):
    """The views as arrays, by slices alone."""
    whole = np.asarray(resize_shorter(picture, shorter))
    height, width = whole.shape[:2]
    if kind == "whole":
        return [whole]
    middle = round((height - side) / 2), round((width - side) / 2)
    places = [middle]
    if kind == "ten":
        places += [(0, 0), (0, width - side), (height - side, 0), (height - side, width - side)]
    crops = [whole[y : y + side, x : x + side] for y, x in places]
    return [view for crop in crops for view in ((crop, crop[:, ::-1]) if kind == "ten" else (crop,))]


PROTOCOLS = {
    "crop": (Crop(56, 64), [("centre", 56, 64)]),
    "larger crop": (Crop(80, 80), [("centre", 80, 80)]),
    "ten crops": (TenCrop(56, 64), [("ten", 56, 64)]),
    "scales": (MultiScale((56, 64, 96)), [("whole", 0, side) for side in (56, 64, 96)]),
}


@pytest.mark.parametrize("average", ["softmax", "logits"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_is_the_mean_over_its_views_seen_one_at_a_time(pictures, net, name, average):
    """In float64, and for whole pictures as the mean of the scores at every place of the last map."""
    views, described = PROTOCOLS[name]
    exact = resnets.create("resnet18", widths=(4, 8, 8, 8), num_classes=7, dtype=torch.float64).eval()
    exact.load_state_dict(net.state_dict())
    found = probabilities([member_of(net, normalize, views)], pictures, average)
    for picture, got in zip(pictures, found, strict=True):
        answers = []
        for word in described:
            for view in slow_views(picture, *word):
                x = normalize(torch.from_numpy(view.copy()).permute(2, 0, 1))[None].double()
                with torch.no_grad():
                    last = exact.forward_features(x)
                    places = last.permute(0, 2, 3, 1) @ exact.classifier.weight.T + exact.classifier.bias
                answers.append(places.mean((0, 1, 2)))
        stacked = torch.stack(answers)
        wanted = stacked.softmax(1).mean(0) if average == "softmax" else stacked.mean(0).softmax(0)
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
    assert len(list(views.views(pictures[0]))) == {"ten crops": 10, "scales": 3}.get(name, 1)


def test_an_ensemble_is_the_mean_of_its_members(pictures, net):
    other = resnets.create("resnet18", widths=(4, 8, 8, 8), num_classes=7, seed=1).eval()
    views = Crop(56, 64), TenCrop(40, 48)
    members = [member_of(n, normalize, v) for n, v in zip((net, other), views, strict=True)]
    alone = [probabilities([member], pictures) for member in members]
    torch.testing.assert_close(probabilities(members, pictures), (alone[0] + alone[1]) / 2)


def test_few_pictures_a_batch_give_the_same(pictures, net, monkeypatch):
    member = member_of(net, normalize, MultiScale((56, 64)))
    together = probabilities([member], pictures * 3)
    monkeypatch.setattr("resnets.evaluation.ensemble._PIXELS", 1)
    torch.testing.assert_close(probabilities([member], pictures * 3), together, atol=1e-5, rtol=1e-4)


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path, pictures, net):
    """Four classes of seven, two pictures each, and weights whose file says all that is needed."""
    for name in ("ant", "bee", "cat", "eel"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        for i, picture in enumerate(pictures[:2]):
            picture.rotate(90 * len(name) + i).save(tmp_path / "tree" / name / f"{i}.jpg", quality=95)
    names = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")
    said = Metadata(names, preprocessing=Preprocessing(MEAN, STD, crop=56, resize=64))
    resnets.save_weights(net, tmp_path / "a.safetensors", metadata=said.to_metadata())
    return tmp_path


def counted(tree, net, views, labels):
    """Top-1 and top-5 mistakes, one picture at a time."""
    wrong = wrong5 = 0
    for name, label in labels.items():
        for path in sorted((tree / "tree" / name).iterdir()):
            picture = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
            ranks = probabilities([member_of(net, normalize, views)], [picture])[0].argsort(descending=True)
            wrong += int(ranks[0]) != label
            wrong5 += label not in ranks[:5].tolist()
    return wrong, wrong5


@pytest.mark.parametrize(
    ("words", "views"),
    [
        ([], Crop(56, 64)),
        (["--crop", "48@50"], Crop(48, 50)),
        (["--ten-crop", "--average", "logits"], TenCrop(56, 64)),
        (["--multi-scale", "40,64"], MultiScale((40, 64))),
    ],
)
def test_eval_finds_classes_by_their_folders_names(tree, net, capsys, words, views):
    command = ["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree"), "--engine", "plain", "--json", *words]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = counted(tree, net, views, {"ant": 0, "bee": 1, "cat": 2, "eel": 4})
    assert (found["images"], found["wrong"], found["top5"]["wrong"]) == (8, *wanted)
    assert found["views"] == str(views)


def test_eval_of_an_ensemble_writes_its_result_with_provenance(tree, capsys):
    other = resnets.create("preresnet18", widths=(4, 8, 8, 8), num_classes=7, seed=3)
    resnets.save_weights(other, tree / "b.safetensors")
    files = [str(tree / "a.safetensors"), str(tree / "b.safetensors")]
    assert main(["eval", *files, "--data", str(tree / "tree"), "--crop", "64@64", "-o", str(tree / "r.json")]) == 0
    shown = capsys.readouterr().out
    assert "resnet18 and preresnet18 on" in shown
    assert "top-5 error" in shown
    written = json.loads((tree / "r.json").read_text())
    assert [network["name"] for network in written["networks"]] == ["resnet18", "preresnet18"]
    assert {"command", "commit", "versions", "machine", "top5", "views"} <= written.keys()


def test_an_ensemble_on_images_in_memory(tmp_path, capsys):
    for seed in (0, 1):
        net = resnets.create("resnet20", blocks=1, widths=(4, 8, 8), seed=seed)
        resnets.save_weights(net, tmp_path / f"{seed}.safetensors")
    words = ["--data", "synthetic:64", "--json"]
    assert main(["eval", str(tmp_path / "0.safetensors"), *words]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["eval", str(tmp_path / "0.safetensors"), str(tmp_path / "0.safetensors"), *words]) == 0
    twice = json.loads(capsys.readouterr().out)
    assert (twice["wrong"], twice["loss"]) == (alone["wrong"], pytest.approx(alone["loss"], rel=1e-5))
    assert main(["eval", str(tmp_path / "0.safetensors"), str(tmp_path / "1.safetensors"), *words]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] != twice["loss"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--crop", "224x256"], "write the crop and the shorter side"),
        (["--crop", "256@224"], "a crop of 256 does not fit into a shorter side of 224"),
        (["--crop", "8@8"], "needs images of at least 17x17"),
        (["--multi-scale", "64", "--ten-crop"], "leave out --crop and --ten-crop"),
        (["--average", "votes"], "unknown average 'votes'"),
        (["--normalize", "channel"], "statistics of training images, which a folder has not"),
    ],
)
def test_mistakes_in_a_protocol_get_one_sentence(tree, capsys, words, message):
    assert main(["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree"), *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_folders_of_other_classes_are_refused(tree, capsys):
    (tree / "tree" / "bee").rename(tree / "tree" / "wasp")
    assert main(["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree")]) == 2
    assert "has a folder 'wasp', which is not one of the 7 classes of the weights" in capsys.readouterr().err


def test_folders_that_are_numbers_are_classes_numbers(tree, net, capsys):
    for number, name in ((0, "ant"), (6, "bee"), (3, "cat"), (2, "eel")):
        (tree / "tree" / name).rename(tree / "tree" / f"{number:04d}")
    assert main(["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = counted(tree, net, Crop(56, 64), {"0000": 0, "0006": 6, "0003": 3, "0002": 2})
    assert (found["wrong"], found["top5"]["wrong"]) == wanted


def test_networks_with_other_classes_are_no_ensemble(tree, net, capsys):
    said = Metadata(("bee", "ant", "cat", "dog", "eel", "fox", "gnu"))
    resnets.save_weights(net, tree / "b.safetensors", metadata=said.to_metadata())
    files = [str(tree / "a.safetensors"), str(tree / "b.safetensors")]
    assert main(["eval", *files, "--data", str(tree / "tree")]) == 2
    assert "have different classes or class order" in capsys.readouterr().err


def test_a_broken_picture_is_named(tree, capsys):
    (tree / "tree" / "bee" / "2.jpg").write_bytes(b"no picture")
    assert main(["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree")]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "2.jpg cannot be decoded" in told
    assert "skip such images with --bad-images skip" in told


def test_broken_pictures_are_passed_over_when_asked_to(tree, net, capsys):
    command = ["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree"), "--engine", "plain"]
    (tree / "tree" / "ant" / "00.jpg").write_bytes(b"no picture")
    (tree / "tree" / "eel" / "2.jpg").touch()
    assert main([*command, "--bad-images", "skip", "--json"]) == 0
    told = capsys.readouterr()
    assert [line.partition("/tree/")[2] for line in told.err.splitlines() if "warning" in line] == [
        "ant/00.jpg cannot be decoded (it is none of JPEG, PNG, BMP, GIF, WEBP, TIFF, PPM); skipped.",
        "eel/2.jpg is empty; skipped.",
    ]
    found = json.loads(told.out)
    (tree / "tree" / "ant" / "00.jpg").unlink()
    (tree / "tree" / "eel" / "2.jpg").unlink()
    wanted = counted(tree, net, Crop(56, 64), {"ant": 0, "bee": 1, "cat": 2, "eel": 4})
    assert (found["images"], found["wrong"], found["top5"]["wrong"], found["skipped"]) == (8, *wanted, 2)


def test_a_tree_of_broken_pictures_has_no_error(tree, capsys):
    for path in (tree / "tree").glob("*/*.jpg"):
        path.write_bytes(b"no picture")
    command = ["eval", str(tree / "a.safetensors"), "--data", str(tree / "tree"), "--bad-images"]
    assert main([*command, "skip"]) == 2
    assert "tree has no picture that can be read" in capsys.readouterr().err.splitlines()[-1]
    assert main([*command, "ignore"]) == 2
    assert "unknown policy for bad images 'ignore'" in capsys.readouterr().err


def test_folders_from_1_on_are_classes_in_the_order_of_numbers(tmp_path):
    """As training numbers them, so that 10 comes after 9."""
    for number in range(1, 11):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.jpg").write_bytes(b"x")
    found = open_pictures(str(tmp_path), Metadata(), resnets.spec_of("resnet20"), "error", print).files
    assert [(Path(found.path(i)).parent.name, int(found.labels[i])) for i in range(10)] == [
        (str(i + 1), i) for i in range(10)
    ]


def test_crops_are_written_as_the_papers_say_them():
    assert parse_sides("224@256") == (224, 256)
    assert parse_sides("320") == (320, 320)
