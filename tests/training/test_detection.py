"""Training a detector: ten pictures by heart, kills, two processes, and what users of other detectors stumble over."""

import copy
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import tiny
import torch

import resnets
from resnets import runs
from resnets.cli import main
from resnets.data.annotations import open_annotated
from resnets.detection.detector import FasterRCNN
from resnets.detector_spec import detector_of
from resnets.engine.native.build import load
from resnets.errors import DivergedError, UserError
from resnets.metadata import Preprocessing
from resnets.recipe import RECIPES, recipe_of
from resnets.training.detection import Detection, resolve_anchors
from resnets.training.session import train
from resnets.training.task import Setup
from resnets.weights.detectors import open_detector, save_detector
from tests.detection.shapes import CLASSES, QUICK, TINY, write_shapes
from tests.detection.test_detector import make

KILLER = Path(tiny.__file__).with_name("killer.py")
SHORT = {**TINY, **QUICK, "length": "6it", "warmup": "0it", "log_every": 1, "quiet": True}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="module")
def learned(shapes, tmp_path_factory):
    """A detector that has learned ten pictures."""
    out = tmp_path_factory.mktemp("learned")
    return train(
        "faster_rcnn_resnet18", shapes, "detection-quick", out=str(out), **TINY, **QUICK, length="900it", quiet=True
    )


def test_ten_pictures_by_heart(learned):
    assert learned.result["task"] == "detection"
    assert learned.result["test"]["map"] > 95
    assert learned.result["test"]["metric"] == "voc2012"
    losses = [line["loss"] for line in learned.metrics() if line["kind"] == "train"]
    assert losses[-1] < 0.4 * losses[0]
    assert {"rpn_score", "rpn_box", "class", "box"} <= set(learned.result["train"])


def test_the_file_of_a_run_says_how_to_use_it(learned, shapes):
    net = resnets.load(learned.path)
    assert isinstance(net, FasterRCNN)
    assert net.classes == CLASSES
    assert (net.scaling.side, net.scaling.longest) == (96, 128)
    assert net.metadata.data == shapes
    score = resnets.evaluate(learned.path)  # on the data that it was trained on
    assert score.precision == pytest.approx(learned.result["test"]["map"])
    assert score.to_dict()["interval"] == pytest.approx(learned.result["test"]["interval"])
    with pytest.raises(UserError, match="is a detector; this needs a classifier"):
        resnets.analyze(str(learned.path), "synthetic:64")


def test_switches_of_the_test_keep_what_was_learned(learned):
    for options in ({"refine": True}, {"mirror": True}, {"sides": (80, 96, 112)}, {"metric": "coco"}):
        score = resnets.evaluate(learned, **options)
        assert score.precision > (60 if "metric" in options else 85), options
    ensemble = resnets.evaluate([learned, learned])
    assert ensemble.precision == pytest.approx(learned.result["test"]["map"], abs=3)
    assert "2 detectors" in ensemble.context["views"]


def test_predict_finds_the_objects(learned, shapes):
    data = open_annotated(shapes)
    found = resnets.predict(learned, [data.train.paths[0], "nowhere.png"])
    truth = data.train.truth(0)
    assert sorted(found[0].classes) == sorted(data.classes[label] for label in truth.labels)
    for box, label in zip(found[0].boxes, found[0].labels, strict=True):
        near = np.abs(truth.boxes[truth.labels == label] - box).max(1).min()
        assert near < 10
    assert "nowhere.png" in found[1].fault


def test_export_computes_the_same(learned, tmp_path):
    done = resnets.export(learned, tmp_path / "net.onnx")
    assert done.difference < 1e-4
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    known = session.get_modelmeta().custom_metadata_map
    assert json.loads(known["classes"]) == list(CLASSES)
    assert json.loads(known["preprocessing"])["side"] == 96
    with pytest.raises(UserError, match="exported as ONNX"):
        resnets.export(learned, tmp_path / "net.pt2")


@pytest.mark.parametrize("fields", [{}, {"context": True}, {"pool": "align"}])
def test_every_form_is_exported(fields, tmp_path):
    for name in ("resnet18", "preresnet18", "vgg16"):
        net = make(name, **fields).eval()
        save_detector(net, tmp_path / "net.safetensors")
        assert resnets.export(tmp_path / "net.safetensors", tmp_path / "net.onnx").difference < 1e-4, name


def test_a_graph_that_computes_something_else_is_not_written(learned, tmp_path, monkeypatch):
    from resnets.detection import onnx

    monkeypatch.setattr(onnx, "DEVIATIONS", (0.1, 0.1, 0.2, 0.3))
    with pytest.raises(UserError, match=r"differ from PyTorch's by .*; not written"):
        resnets.export(learned, tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


# --- kills and processes ----------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_run_killed_at_random_moments_ends_with_the_same_bytes(shapes, tmp_path):
    options = {**SHORT, "model": "faster_rcnn_resnet18", "data": shapes, "recipe": "detection-quick", "seed": 1}
    options |= {"length": "10it", "flip": "random", "detect_side": "80,96", "ema": 0.5, "validation": 2}
    job = {
        "out": str(tmp_path),
        "kills": 4,
        "signal": "SIGKILL",
        "seed": 0,
        "options": {**options, "checkpoint_every": 0},
    }
    done = subprocess.run(
        [sys.executable, KILLER, json.dumps([job])], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)
    assert told["codes"].count(-signal.SIGKILL) == len(told["struck"]) >= 4
    (whole,), (cut,) = (runs.find(Path(told[which])) for which in ("whole", "killed"))
    assert whole.weights.read_bytes() == cut.weights.read_bytes()
    tiny.assert_same(whole, cut)


@pytest.mark.skipif(load().kernels is None, reason="no kernels here, so PyTorch computes")
def test_a_run_ends_with_the_same_bytes_on_any_number_of_threads(shapes, tmp_path):
    one, two = (
        train(
            "faster_rcnn_resnet18", shapes, "detection-quick", out=str(tmp_path / threads), test=False, freeze=1,
            **{**SHORT, "length": "3it", "threads": threads},
        )
        for threads in ("1", "2")
    )  # fmt: skip
    assert one.weights.read_bytes() == two.weights.read_bytes()
    assert (one.config["engine"]["threads"], one.config["engine"]["units"]) == ("any", "native")


def test_two_processes_train_as_one(shapes, tmp_path):
    """BN is fixed and samples follow from the picture, so only the order of sums differs."""
    words = [
        "train",
        "faster_rcnn_resnet18",
        "--data",
        shapes,
        "--recipe",
        "detection-quick",
        "--quiet",
        "--batch",
        "2",
    ]
    given = {**SHORT, "length": "4it"}
    del given["quiet"]
    for name, value in given.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    tiny.two_processes([*words, "--out", str(tmp_path / "two")], timeout=200)
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    (two,), (one,) = (runs.find(tmp_path / which) for which in ("two", "one"))
    assert two.result["test"]["map"] is not None
    found, wanted = (safetensors.torch.load_file(run.weights) for run in (two, one))
    for name, tensor in wanted.items():
        assert torch.allclose(found[name].float(), tensor.float(), rtol=1e-2, atol=1e-3), name


# --- what users of other detectors stumble over -----------------------------------------------


def begin(shapes: str, **changes: object) -> Detection:
    """A task that is ready to give batches."""
    data = open_annotated(shapes)
    fields = {k: v for k, v in QUICK.items() if k not in ("threads", "decoders", "anchor_ratios")}
    recipe = recipe_of("detection-quick", **{**fields, **changes})
    recipe, spec = resolve_anchors(recipe, detector_of("faster_rcnn_resnet18", network=TINY_NETWORK), data)
    task = Detection(spec, data, reading={"workers": 0})
    task.open(Setup(recipe, 3, torch.device("cpu"), slice(0, recipe.batch), 1))
    return task


TINY_NETWORK = {key: TINY[key] for key in ("widths", "blocks")}


def test_batches_follow_from_seed_and_step_and_boxes_from_their_pictures(shapes):
    task = begin(shapes, flip="random", detect_side="64,96", batch=3)
    first, again = task.batch(4), begin(shapes, flip="random", detect_side="64,96", batch=3).batch(4)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.image, other.image)
        assert (one.key, one.path) == (other.key, other.path)
    seen = [example for step in range(12) for example in task.batch(step)]
    assert {min(example.image.shape[1:]) for example in seen} == {64, 96}
    for example in seen:  # discs are red, squares blue: the middle of each box shows it, mirrored or not
        for box, label in zip(example.objects.boxes, example.objects.labels, strict=True):
            x, y = int(box[[0, 2]].mean()), int(box[[1, 3]].mean())
            red, _, blue = example.image[:, y, x]
            assert (red > blue) == (int(label) == 0)


def test_preprocessing_is_that_of_the_weights(shapes, tmp_path):
    """Weights that read 0 to 255 less a mean are given such pictures, and the detector's file says so."""
    net = resnets.create("resnet18", widths=TINY["widths"], blocks=TINY["blocks"], seed=1, num_classes=5)
    mean, std = (0.4, 0.5, 0.6), (1 / 255,) * 3
    net.metadata = dataclasses.replace(net.metadata, preprocessing=Preprocessing(mean, std, crop=224, resize=256))
    resnets.save_weights(net, tmp_path / "net.safetensors")
    run = train(
        "faster_rcnn_resnet18", shapes, "detection-quick", out=str(tmp_path), weights=str(tmp_path / "net.safetensors"),
        **{**SHORT, "length": "1it"}, freeze=1,
    )  # fmt: skip
    found = resnets.load(run)
    assert (found.scaling.mean, found.scaling.std) == (mean, std)
    assert torch.equal(found.backbone.stem.conv.weight, net.stem.conv.weight)
    assert run.identity.weights


def test_weights_of_another_network_are_refused(shapes, tmp_path):
    net = resnets.create("resnet34", widths=(8, 8, 8, 8), blocks=1, seed=1)
    resnets.save_weights(net, tmp_path / "net.safetensors")
    with pytest.raises(UserError, match=r"holds weights of resnet34 with .*widths"):
        train("faster_rcnn_resnet18", shapes, out=str(tmp_path), weights=str(tmp_path / "net.safetensors"), **SHORT)
    assert not list(tmp_path.glob("*/config.json"))


def test_weights_of_torchvision_are_a_backbone(shapes, tmp_path):
    from tests.peers import build as build_peer

    for name, network in (("resnet18", {}), ("vgg16", {})):
        theirs = build_peer("torchvision", name)
        torch.save(theirs.state_dict(), tmp_path / f"{name}.pth")
        run = train(
            f"faster_rcnn_{name}", shapes, "detection-quick", out=str(tmp_path / name),
            weights=str(tmp_path / f"{name}.pth"), test=False,
            **{k: v for k, v in SHORT.items() if k not in TINY} | {"length": "1it", "roi_batch": 4}, **network,
        )  # fmt: skip
        own = resnets.load(run).backbone.state_dict()
        first = "stem.conv.weight" if name == "resnet18" else "features.0.weight"
        assert torch.equal(own[first], theirs.state_dict()["conv1.weight" if name == "resnet18" else first])


def test_another_detector_is_fine_tuned(learned, shapes, tmp_path):
    """With the same classes all of it is kept, with others the sibling layers are new."""
    with_same = train(
        "faster_rcnn_resnet18",
        shapes,
        out=str(tmp_path),
        weights=str(learned.path),
        **{**SHORT, "lr": 1e-6, "warmup_lr": 1e-6},
    )
    assert with_same.result["test"]["map"] > 90
    root = tmp_path / "other"
    write_shapes(root)
    for path in (root / "Annotations").glob("*.xml"):
        path.write_text(path.read_text().replace("<name>disc", "<name>ball"))
    other = train(
        "faster_rcnn_resnet18", f"voc:{root}:train:test", out=str(tmp_path), weights=str(learned.path), **SHORT
    )
    assert resnets.load(other).classes == ("ball", "square")
    with pytest.raises(UserError, match="holds a detector with pool max"):
        train("faster_rcnn_resnet18", shapes, out=str(tmp_path), weights=str(learned.path), pool="align", **SHORT)


def test_a_loss_that_is_not_finite_names_the_picture(shapes, tmp_path):
    with pytest.raises(
        DivergedError, match=r"the loss of .*p\d+\.png is not finite in step \d+ .*last good checkpoint"
    ):
        train(
            "faster_rcnn_resnet18",
            shapes,
            out=str(tmp_path),
            **{**SHORT, "optimizer": "sgd", "lr": 1e12, "length": "20it"},
        )


def test_frozen_layers_and_missing_weights_are_said(shapes, tmp_path, capsys):
    options = {**SHORT, "quiet": False, "length": "1it"}
    train("faster_rcnn_resnet18", shapes, out=str(tmp_path), freeze=2, test=False, **options)
    said = capsys.readouterr().err
    assert "the stem and 2 stages are not trained (freeze); BN is a fixed scale and offset" in said
    assert "the backbone begins without weights (--weights)" in said
    assert "anchors of 24, 36 pixels" in said


def test_statistics_of_bn_are_computed_for_a_network_without_weights(shapes):
    """Mean and variance of a map are the means of each picture's, while BN before it normalises picture by picture."""
    task = begin(shapes)
    net = task.build(0)
    norms = [module for module in net.backbone.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert not any(norm.training for norm in norms)
    learning, seen = copy.deepcopy(net.backbone), []
    learned = [module.train() for module in learning.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    learned[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double()))
    with torch.no_grad():
        for x in task._plain(min(64, len(task.train_index)), net.scaling):
            learning(x)
    for found, wanted in (
        (norms[-1].running_mean, [x.mean((0, 2, 3)) for x in seen]),
        (norms[-1].running_var, [x.var((0, 2, 3)) for x in seen]),
    ):
        torch.testing.assert_close(found.double(), torch.stack(wanted).mean(0), rtol=1e-3, atol=1e-4)


def test_bad_pictures_are_refused_or_replaced(tmp_path):
    word = write_shapes(tmp_path / "data")
    bad = tmp_path / "data" / "JPEGImages" / "p004.png"
    bad.write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"p004.png cannot be decoded .*--bad-images skip"):
        train("faster_rcnn_resnet18", word, out=str(tmp_path / "runs"), **{**SHORT, "length": "12it"})
    run = train(
        "faster_rcnn_resnet18", word, out=str(tmp_path / "runs"), bad_images="skip", **{**SHORT, "length": "12it"}
    )
    assert run.result["test"]["images"] == 9


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "cifar10"}, "a detector learns from boxes"),
        ({"recipe": "cifar-paper"}, "is not for detectors; choose one of voc-paper"),
        ({"engine": "compiled"}, "has no engine compiled"),
        ({"label_smoothing": 0.1}, "label_smoothing is for classifiers"),
        ({"normalize": "pixel"}, "normalised by channel"),
        ({"freeze": 4}, "freeze must be from 0 to 3"),
        ({"detect_side": "6"}, "detect_side must look like"),
        ({"anchor_sizes": "0,5"}, "anchor_sizes must look like"),
        ({"order": "nonsense"}, "unknown order"),
        ({"pool": "mean"}, "unknown pool"),
        ({"weights": "nowhere.safetensors"}, "there is no file nowhere.safetensors"),
    ],
)
def test_wrong_trainings_are_refused_in_a_sentence(shapes, tmp_path, changes, words):
    options = {"data": shapes, "recipe": "detection-quick", **SHORT, **changes}
    with pytest.raises(UserError, match=words):
        train("faster_rcnn_resnet18", out=str(tmp_path), **options)


def test_detection_is_for_detectors(tmp_path):
    with pytest.raises(UserError, match="recipe voc-paper is for detectors"):
        train("preresnet20", "synthetic:64", "voc-paper", out=str(tmp_path))
    with pytest.raises(UserError, match="context: only a detector has that"):
        train("preresnet20", "synthetic:64", context=True, out=str(tmp_path))


def test_data_without_test_pictures(shapes, tmp_path):
    only = shapes.removesuffix(":test")
    with pytest.raises(UserError, match="has no pictures to test on"):
        train("faster_rcnn_resnet18", only, out=str(tmp_path), **SHORT)
    run = train("faster_rcnn_resnet18", only, out=str(tmp_path), validation=3, **{**SHORT, "length": "2it"})
    assert run.result["validation"]["images"] == 3
    assert "test" not in run.result


def test_the_papers_recipes():
    voc, coco = RECIPES["voc-paper"], RECIPES["coco-paper"]
    assert (voc.lr, voc.length, voc.milestones, voc.batch) == (0.001, "80000it", "60000it", 1)
    assert (voc.detect_sides, voc.detect_longest, voc.anchor_sides) == ((600,), 1000, (128, 256, 512))
    assert (voc.rpn_batch, voc.roi_batch, voc.roi_positive) == (256, 128, 0.25)
    assert (coco.length, coco.milestones, coco.batch, coco.anchor_sides) == (
        "320000it",
        "240000it",
        8,
        (64, 128, 256, 512),
    )


def test_damaged_files_of_detectors_are_refused(learned, tmp_path):
    net = open_detector(learned.path)
    path = tmp_path / "net.safetensors"

    def refuse(words: str, **header: str) -> None:
        save_detector(net, path, header)
        with pytest.raises(UserError, match=words):
            resnets.load(path)

    refuse("cannot be read", **{"resnets.detector": "{"})
    refuse("with a backbone", **{"resnets.detector": "{}"})
    refuse("classes must name each of the 2", classes='["a"]')
    refuse("has metadata that cannot be read", preprocessing="{}")
    refuse("std above 0", preprocessing=json.dumps({"mean": [0, 0, 0], "std": [0, 1, 1], "side": 96, "longest": 128}))
    refuse(
        "longest side at least", preprocessing=json.dumps({"mean": [0] * 3, "std": [1] * 3, "side": 96, "longest": 12})
    )
    other = {**net.spec.to_dict(), "rpn_width": 32}
    refuse(r"does not fit its description: \d+ misshaped", **{"resnets.detector": json.dumps(other)})
    deep = json.loads(json.dumps(net.spec.to_dict()))
    deep["backbone"]["blocks"] = [2**30] * 4
    refuse("describes more layers", **{"resnets.detector": json.dumps(deep)})


def test_the_commands(learned, shapes, tmp_path, capsys):
    picture = open_annotated(shapes).train.paths[0]
    assert main(["eval", str(learned.path), "--per-class", "--compare", str(learned.path)]) == 0
    out = capsys.readouterr().out
    assert "mAP" in out
    assert "disc" in out
    assert "difference +0.00 points" in out
    assert main(["eval", str(learned.path), "--json", "-o", str(tmp_path / "new" / "score.json")]) == 0
    assert json.loads(capsys.readouterr().out)["map"] > 95
    written = json.loads((tmp_path / "new" / "score.json").read_text())
    assert {"map", "command", "versions"} <= set(written)
    assert [one["run"] for one in written["weights"]] == [learned.path.name]
    assert main(["predict", picture, "--weights", str(learned.path), "-o", str(tmp_path / "boxes.png")]) == 0
    assert (tmp_path / "boxes.png").stat().st_size > 500
    capsys.readouterr()
    assert main(["predict", picture, "--weights", str(learned.path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["objects"]) > 0
    assert main(["predict", picture, "--weights", str(learned.path), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "file,rank,label,class,score,left,top,right,bottom"
    folder = str(Path(picture).parent)
    assert main(["predict", folder, "--weights", str(learned.path), "-o", str(tmp_path / "all")]) == 0
    assert len(list((tmp_path / "all").glob("*.png"))) == 10
    capsys.readouterr()
    for words, said in (
        (["eval", str(learned.path), "--ten-crop"], "are for classifiers"),
        (["eval", str(learned.path), "--shift", "1"], "and --shift are for classifiers"),
        (["eval", str(learned.path), "--engine", "onnxruntime"], "is tested by engine"),
        (["eval", str(learned.path), "--data", "cifar10"], "is tested on boxes"),
        (["eval", str(learned.path), "--mistakes"], "is for classifiers"),
        (["eval", "preresnet20.cifar10", "--refine"], "is for detectors"),
        (["predict", picture, "--weights", str(learned.path), "--cam", "a.png"], "is for classifiers"),
        (["predict", picture, "-o", "a.png"], "draws the boxes of a detector"),
        (["predict", picture, "--weights", str(learned.path), "-o", "a.txt"], "pictures are written as"),
        (["predict", picture, "--sides", "x", "--weights", str(learned.path)], "sides are written as"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err, words


def test_runs_and_info_take_detectors(learned, capsys):
    assert main(["runs", str(learned.path.parent)]) == 0
    assert "faster_rcnn_resnet18" in capsys.readouterr().out
    assert main(["info", "faster_rcnn_resnet101"]) == 0
    out = capsys.readouterr().out
    assert "conv4_x" in out
    assert "128, 256, 512 pixels" in out
    assert main(["info", str(learned.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["detector"]["num_classes"] == 2
    assert found["parameters"] == sum(p.numel() for p in resnets.load(learned).parameters())
