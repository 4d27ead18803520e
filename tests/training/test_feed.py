"""Training on files: batches against a slow loop, runs that are cut, two processes, bad images, given weights."""

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
from pictures import tree
from resnets import runs
from resnets.counter_rng import order
from resnets.data import open_folder
from resnets.data.colour import jitter, lighting
from resnets.data.random_crops import View
from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD
from resnets.recipe import RECIPES, recipe_of
from resnets.training.schedule import Schedule
from resnets.weights.networks import to_peer
from resnets.zoo import spec_of

SPEC = spec_of("preresnet20", num_classes=3, **tiny.NETWORK)
SMALL = {"side": 16, "length": "8it", "batch": 12, "milestones": "6it", "lr": 0.02}
RUN = {**SMALL, "recipe": "imagenet-paper", "sizes": "", "warmup": "0it", "decoders": 1, "quiet": True, "log_every": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    tree(root / "train", each=10)
    tree(root / "val", each=3)
    return open_folder(root)


def run_of(data, out, **changes):
    return tiny.train_tiny(out, **{**RUN, "data": data.name, **changes})


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["imagenet-paper", "imagenet-aspect"])
def test_a_batch_is_what_a_slow_loop_gives(data, recipe):
    """Image by image: its place in the order of its epoch, its part, its colours, in float64."""
    chosen = recipe_of(recipe, **{**SMALL, "batch": 16})
    trainer = tiny.trainer_of(SPEC, data, chosen, 5, reading={"workers": 0})
    kind = View(chosen.augment, 16, (18, 34), "random")
    for step in (0, 1, 3):  # the second batch reaches into the second epoch
        images, labels = trainer.task.feed.batch(step, trainer.schedule.size(step))
        assert images.shape == (16, 3, 16, 16)
        for place, (x, y) in enumerate(zip(images, labels, strict=True), 16 * step):
            epoch, within = divmod(place, 30)
            index = np.array([order(30, 5, epoch)[within]])
            u, mirrored = kind.numbers(5, epoch, index)
            pixels = kind(Path(data.train.path(int(index[0]))).read_bytes(), u[0], bool(mirrored[0]))
            wanted = torch.from_numpy(pixels.copy()).double().permute(2, 0, 1)[None] / 255
            if chosen.jitter:
                wanted = jitter(wanted, 0.4, 5, epoch, index)
            wanted = wanted + lighting(0.1, 5, epoch, index).double()[..., None, None]
            mean, std = (torch.tensor(v).double().view(3, 1, 1) for v in IMAGENET_MEAN_STD)
            torch.testing.assert_close(x.double(), ((wanted - mean) / std)[0], rtol=1e-4, atol=1e-4)
            assert int(y) == data.train.labels[index[0]]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # torch's, where one core is free
def test_batches_do_not_depend_on_workers_shares_or_where_one_begins(data):
    chosen = recipe_of("imagenet-aspect", **SMALL)
    schedule = Schedule(chosen, 30)
    whole = tiny.trainer_of(SPEC, data, chosen, 0, reading={"workers": 0}).task.feed
    steps = [whole.batch(step, schedule) for step in range(5)]
    ahead = tiny.trainer_of(SPEC, data, chosen, 0, reading={"workers": 2}).task.feed
    for step in (3, 4, 0, 2):
        x, y = ahead.batch(step, schedule)
        assert torch.equal(x, steps[step][0])
        assert torch.equal(y, steps[step][1])
    ahead.close()
    ahead.share = slice(5, 12)
    assert torch.equal(ahead.batch(2, schedule)[0], steps[2][0][5:])
    ahead.close()


def test_padded_crops_of_small_images_are_those_of_cifar(data):
    """Whole images at side 16, and then what images in memory get."""
    from resnets.data.augment import Augment, Normalize

    trainer = tiny.trainer_of(SPEC, data, recipe_of("cifar-paper", batch=12, side=16, pad=2), 1, reading={"workers": 0})
    x, _ = trainer.task.feed.batch(0)
    index = torch.from_numpy(order(30, 1, 0)[:12])
    whole = View("centre", 16, (16, 16))
    pixels = [whole(Path(data.train.path(int(i))).read_bytes(), np.zeros(9)).transpose(2, 0, 1) for i in index]
    augment = Augment(Normalize.by_channel(*IMAGENET_MEAN_STD), 1, pad=2)
    torch.testing.assert_close(x, augment(torch.from_numpy(np.stack(pixels)), index, 0))


# --- runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that nothing disturbs."""
    return run_of(data, tmp_path_factory.mktemp("whole"), curve=True, validation=6, precise_bn=12)


def test_a_run_tests_on_val_and_says_how_images_are_seen(whole):
    assert whole.result["test"]["images"] == 9
    assert whole.result["validation"]["images"] == 6
    header = safetensors.safe_open(whole.weights, "pt").metadata()
    assert json.loads(header["classes"]) == ["cat", "dog", "emu"]
    said = {
        "normalize": "channel",
        "mean": list(IMAGENET_MEAN_STD[0]),
        "std": list(IMAGENET_MEAN_STD[1]),
        "crop": 16,
        "resize": 18,
    }
    assert json.loads(header["preprocessing"]) == said
    assert runs.RunKey.from_dict(whole.config["run"]).slug == whole.path.name


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_run_that_is_killed_ends_with_the_same_bytes(data, whole, tmp_path):
    job = {
        "options": {
            **tiny.OPTIONS, **RUN, "data": data.name, "curve": True, "validation": 6, "precise_bn": 12, "warmup": "0it",
            "checkpoint_every": 0,
        },
        "out": str(tmp_path), "kills": 2, "signal": "SIGKILL", "seed": 3,
    }  # fmt: skip
    killer = Path(tiny.__file__).with_name("killer.py")
    path = os.pathsep.join([str(Path(runs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(killer), json.dumps([job])],
        capture_output=True, text=True, check=True, timeout=600, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    (told,) = json.loads(done.stdout)
    assert told["codes"].count(-signal.SIGKILL) >= 2
    (killed,) = runs.find(Path(told["killed"]))
    tiny.assert_same(whole, killed)


def test_two_processes_train_as_one_that_takes_the_batch_in_two_halves(data, tmp_path):
    command = ["train", "preresnet20", "--widths", "4,8,8", "--blocks", "1", "--data", data.name, "--quiet"]
    command += ["--recipe", "imagenet-paper", "--decoders", "1", "--log-every", "1", "--out", str(tmp_path / "two")]
    command += [word for field, value in SMALL.items() for word in (f"--{field}", str(value))]
    tiny.two_processes(command, timeout=300)
    (two,) = runs.find(tmp_path / "two")
    one = run_of(data, tmp_path / "one", micro_batch=6)
    losses = [[line["loss"] for line in run.metrics() if line["kind"] == "train"] for run in (two, one)]
    assert len(losses[0]) == 8
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert two.result["test"]["images"] == 9


def test_one_tree_needs_images_held_out(tmp_path):
    root = tree(tmp_path / "images", each=6)
    data = open_folder(root)
    with pytest.raises(UserError, match=r"has no folder val to test on: hold out training images by --validation N"):
        run_of(data, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    run = run_of(data, tmp_path / "runs", validation=6, length="2it", curve=True)
    assert run.result["validation"]["images"] == 6
    assert "test" not in run.result


# --- bad images -------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path):
    """The second image of each class is broken, in val too."""
    for part in ("train", "val"):
        tree(tmp_path / part, each=4)
        for path in (tmp_path / part).glob("*/1.jpg"):
            path.write_bytes(path.read_bytes()[:-60])
    return open_folder(tmp_path)


def test_a_bad_image_ends_the_run_with_its_name(broken, tmp_path):
    with pytest.raises(UserError, match=r"1\.jpg cannot be decoded \(.*\); remove it, or skip such"):
        run_of(broken, tmp_path / "runs")


def test_bad_images_are_passed_over_in_one_way_only(broken, tmp_path, capfd):
    """The next good image stands in, with its own label; in testing they do not count."""
    run = run_of(broken, tmp_path / "runs", bad_images="skip")
    assert run.result["test"]["images"] == 9
    warned = [line for line in capfd.readouterr().err.splitlines() if "; skipped" in line]
    assert len(warned) == 6  # each once
    chosen = recipe_of("imagenet-paper", **SMALL)
    feed = tiny.trainer_of(SPEC, broken, chosen, 0, reading={"workers": 0, "bad_images": "skip"}).task.feed
    x, y = feed.batch(0)
    places = order(12, 0, 0)
    stands_in = np.where(places % 4 == 1, places + 1, places)
    assert y.tolist() == broken.train.labels[stands_in].tolist()
    for k in np.flatnonzero(places % 4 == 1):
        (same,) = np.flatnonzero(places == places[k] + 1)
        assert torch.equal(x[k], x[same])  # the same epoch and the same index draw the same


def test_policies_are_two(data, tmp_path):
    with pytest.raises(UserError, match="unknown bad_images 'ignore'"):
        run_of(data, tmp_path, bad_images="ignore")


def test_nothing_readable_is_told(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "train" / name / f"{i}.jpg").write_bytes(b"no")
    with pytest.raises(UserError, match="has no image that can be read"):
        run_of(open_folder(tmp_path), tmp_path / "runs", bad_images="skip", test=False)


# --- from given weights -----------------------------------------------------------------------


def test_new_classes_get_a_new_classifier_and_frozen_stages_stay(data, tmp_path, capfd):
    first = tiny.train_tiny(tmp_path / "first")  # ten classes, 32 pixels
    before = tiny.weights(first)
    options = {"recipe": "finetune", "side": 16, "weights": first.path, "quiet": False}
    tuned = run_of(data, tmp_path / "tuned", **options, freeze=1, milestones="", memory="min")
    assert "with a new classifier for 3 classes" in capfd.readouterr().err
    after = tiny.weights(tuned)
    for name, tensor in after.items():
        stays = name.startswith(("stem.", "units.0."))
        if name.startswith("classifier."):
            assert len(tensor) == 3
        elif not name.endswith("num_batches_tracked") or stays:
            assert torch.equal(tensor, before[name]) == stays, name
    said = json.loads(safetensors.safe_open(tuned.weights, "pt").metadata()["preprocessing"])
    theirs = json.loads(safetensors.safe_open(first.weights, "pt").metadata()["preprocessing"])
    assert (said["mean"], said["std"]) == (theirs["mean"], theirs["std"])
    assert tuned.identity.weights
    assert tuned.identity.recipe.augment == "pad"  # as befits a net of 32 pixels
    assert run_of(data, tmp_path / "tuned", **{**options, "quiet": True}, freeze=1, milestones="").path == tuned.path


def test_the_same_classes_keep_their_classifier(data, whole, tmp_path, capfd):
    run_of(data, tmp_path, weights=whole.weights, lr=0.0, weight_decay=0.0, length="1it", quiet=False)
    assert "and its classifier" in capfd.readouterr().err
    (run,) = runs.find(tmp_path)
    assert torch.equal(tiny.weights(run)["classifier.weight"], tiny.weights(whole)["classifier.weight"])


def test_what_a_name_leaves_open_is_as_the_weights_mean_it(data, tmp_path):
    thin = {"widths": (4, 8, 8), "blocks": 1}
    options = {"recipe": "finetune", "side": 16, "network": thin, "length": "1it", "milestones": "", "test": False}
    theirs = resnets.create("preresnet20", bn_eps=1e-3, resize="pad_both", **thin)
    resnets.save_weights(theirs, tmp_path / "ours.safetensors")
    run = run_of(data, tmp_path / "ours", weights=tmp_path / "ours.safetensors", **options)
    assert (run.identity.spec.bn_eps, run.identity.spec.resize) == (1e-3, "pad_both")
    with pytest.raises(UserError, match="holds weights of preresnet20"):
        run_of(
            data, tmp_path, weights=tmp_path / "ours.safetensors", **{**options, "network": {**thin, "bn_eps": 1e-5}}
        )
    torch.save(to_peer(resnets.create("resnet20", resize="pad_both", **thin), "akamaster"), tmp_path / "a.th")
    run = run_of(data, tmp_path / "a", model="resnet20", weights=tmp_path / "a.th", **options)
    assert run.identity.spec.resize == "pad_both"


def test_weights_of_another_network_are_refused(data, whole, tmp_path):
    with pytest.raises(UserError, match="holds weights of preresnet20"):
        run_of(data, tmp_path, weights=whole.weights, network={"widths": (8, 8, 8), "blocks": 1})
    with pytest.raises(UserError, match="preresnet20 has 3 stages, so freeze cannot be 4"):
        run_of(data, tmp_path, freeze=4)


# --- recipes ----------------------------------------------------------------------------------


def test_the_papers_schedule_on_imagenet():
    paper = RECIPES["imagenet-paper"]
    schedule = Schedule(paper, 1_281_167)
    assert schedule.total == 450_411  # 90 x 1,281,167 / 256, rounded up
    rates = [schedule.lr(round(epoch * 1_281_167 / 256)) for epoch in (0, 29.9, 30.1, 59.9, 60.1, 89.9)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert (paper.momentum, paper.weight_decay, paper.nesterov, paper.shorter) == (0.9, 1e-4, False, (256, 480))


def test_crops_of_pictures_are_refused_for_images_in_memory(tmp_path):
    with pytest.raises(UserError, match=r"crops images in files .*leave augment at pad and side at 0"):
        tiny.train_tiny(tmp_path, augment="scale")


@pytest.mark.parametrize("text", ["256", "200-480", "480-256", "a-b"])
def test_a_bad_range_of_sides_is_told(text):
    with pytest.raises(UserError, match="shorter_side must look like 256-480, from 224 up"):
        recipe_of("imagenet-paper", shorter_side=text)
