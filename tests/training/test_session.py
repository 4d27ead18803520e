"""What a run's folder holds, and what is refused before anything is trained."""

import dataclasses
import io
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

import resnets
from resnets import runs
from resnets.data.augment import Normalize
from resnets.data.batches import MemoryBatches
from resnets.data.transform import normalization as normalization_of
from resnets.errors import UserError
from resnets.evaluation.score import score_images as evaluate
from resnets.recipe import recipe_of
from resnets.training import progress as progresses
from resnets.training.loop import Trainer
from resnets.training.progress import Progress
from resnets.training.schedule import Schedule
from resnets.weights.files import read_metadata
from resnets.weights.models import open_model as subject
from resnets.zoo import spec_of
from tools.torture.training import MEASURED


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny.train_tiny(tmp_path_factory.mktemp("runs"), validation=40, curve=True)


def test_the_config_says_what_the_run_is_and_where_it_began(run):
    config = run.config
    assert run.path.name == run.identity.slug
    assert run.identity.spec == spec_of("preresnet20", **tiny.NETWORK)
    assert (run.identity.data, run.identity.seed) == ("synthetic:256", 0)
    assert run.identity.recipe.batch == 48
    assert config["steps"] == 12
    assert config["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"commit", "machine", "command"} <= set(config)


def test_the_metrics_have_a_line_a_log_step_and_an_epoch(run):
    """216 images in batches of 48: 4.5 an epoch, logged every third step and at the end of an epoch."""
    lines = tiny.curve(run)
    assert [line["step"] for line in lines if line["kind"] == "train"] == [3, 5, 6, 9, 12]
    assert [line["step"] for line in lines if line["kind"] == "epoch"] == [5, 9, 12]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [5, 9, 12]
    assert [line["step"] for line in lines if line["kind"] == "test"] == [5, 9, 12]
    first = run.metrics()[0]
    assert set(first) == {"kind", "step", "epoch", "loss", "error", "lr", *MEASURED}
    assert first["epoch"] == round(3 * 48 / 216, 4)
    assert [line["lr"] for line in lines if line["kind"] == "train"] == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.01])


def test_an_epochs_means_are_those_of_its_steps(tmp_path):
    lines = tiny.train_tiny(tmp_path, log_every=1).metrics()
    single = [line for line in lines if line["kind"] == "train"]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [line["step"] for line in epochs] == [6, 11, 12]  # 256 / 48 = 5.33 batches
    for begin, end, epoch in zip((0, 6, 11), (6, 11, 12), epochs, strict=True):
        for key in ("loss", "error"):
            assert epoch[key] == pytest.approx(sum(line[key] for line in single[begin:end]) / (end - begin))


def test_the_result_is_the_kept_networks(run, images):
    net = resnets.load(run.weights)
    score = evaluate(
        net, torch.from_numpy(images.test_images), torch.from_numpy(images.test_labels), Normalize.of(images)
    )
    assert run.result["test"]["wrong"] == score.wrong
    assert run.result["test"]["loss"] == pytest.approx(score.loss, rel=1e-6)
    assert run.result["validation"]["images"] == 40
    assert run.result["steps"] == 12
    last = [line for line in run.metrics() if line["kind"] == "epoch"][-1]
    assert run.result["train"] == {"loss": last["loss"], "error": last["error"]}


def test_the_weights_say_how_to_use_them(run, images):
    told = read_metadata(run.weights)
    assert json.loads(told["classes"]) == list(images.classes)
    assert json.loads(told["preprocessing"]) == {
        "normalize": "channel", "mean": list(images.mean), "std": list(images.std),
    }  # fmt: skip
    assert json.loads(told["run"]) == run.config["run"]
    assert json.loads(told["scores"])["test"] == run.result["test"]


def test_held_out_images_are_not_in_the_mean_image(tmp_path, images):
    """Neither in training nor when the weights are tested later; `resnets eval` takes the mean over the same images."""
    recipe = recipe_of("cifar-paper", normalize="pixel", validation=40)
    trained, held = images.split(40, 0)
    mean = images.train_images[trained].mean(0, dtype=np.float64) / 255
    for other in (images.train_images, 255 - images.train_images):
        pixels = images.train_images.copy()
        pixels[held] = other[held]
        feed = MemoryBatches(
            dataclasses.replace(images, train_images=pixels), recipe, 0, torch.device("cpu"), slice(0, 8)
        )
        assert torch.equal(feed.normalize.mean, torch.from_numpy(mean).float())
    run = tiny.train_tiny(tmp_path, normalize="pixel", validation=40)
    given = subject(run.path)
    assert torch.equal(normalization_of(given.metadata, given.spec, images).mean, feed.normalize.mean)
    assert torch.equal(normalization_of(given.metadata, given.spec).mean, feed.normalize.mean)
    assert not torch.equal(normalization_of(given.metadata, given.spec, images, "pixel").mean, feed.normalize.mean), (
        "the data's own"
    )


def test_weights_of_older_versions_keep_their_mean_image(tmp_path, images):
    run = tiny.train_tiny(tmp_path, normalize="pixel", length="1it")
    assert "held_out" not in read_metadata(run.weights)["preprocessing"]
    assert torch.equal(
        normalization_of((net := subject(run.path)).metadata, net.spec).mean, Normalize.of(images, "pixel").mean
    )


def test_without_a_test_the_test_images_are_never_looked_at(tmp_path, monkeypatch):
    seen = []
    tested = MemoryBatches.test_batches

    def watched(self, split, share):
        batches = list(tested(self, split, share))
        seen.append(sum(len(labels) for _, labels in batches))
        return iter(batches)

    monkeypatch.setattr(MemoryBatches, "test_batches", watched)
    run = tiny.train_tiny(tmp_path, test=False, validation=40)
    assert set(seen) == {40}
    assert "test" not in run.result
    assert not [line for line in run.metrics() if line["kind"] == "test"]


def test_the_test_set_is_used_once_unless_a_curve_is_asked_for(tmp_path):
    run = tiny.train_tiny(tmp_path)
    assert [line["step"] for line in run.metrics() if line["kind"] == "test"] == [12]


def test_a_curve_does_not_change_the_training(tmp_path):
    one, other = (tiny.train_tiny(tmp_path / str(curve), curve=curve) for curve in (True, False))
    left, right = tiny.weights(one), tiny.weights(other)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_spec_can_be_trained_and_takes_no_changes_beside_it(tmp_path):
    spec = spec_of("preresnet20", **tiny.NETWORK)
    run = tiny.train_tiny(tmp_path, model=spec, network=None, length="1it")
    assert run.identity.spec == spec
    with pytest.raises(UserError, match="takes no changes by `network`"):
        tiny.train_tiny(tmp_path, model=spec)


def test_a_network_with_too_few_classes_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"synthetic:256 has 10 classes and the network only 5\."):
        tiny.train_tiny(tmp_path, network={**tiny.NETWORK, "num_classes": 5})
    assert not list(tmp_path.iterdir())


def test_an_unknown_option_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(UserError, match=r"unknown option 'epoks': did you mean"):
        tiny.train_tiny(tmp_path, epoks=3)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock on Windows")
def test_a_run_that_is_being_trained_is_refused(tmp_path, monkeypatch):
    refused = []
    step = Trainer.step

    def again(self, i):
        if i == 1:
            with pytest.raises(UserError, match="another process is training in") as told:
                tiny.train_tiny(tmp_path)
            refused.append(told)
        step(self, i)

    monkeypatch.setattr(Trainer, "step", again)
    run = tiny.train_tiny(tmp_path)
    assert len(refused) == 1
    assert run.result is not None
    assert len(runs.find(tmp_path)) == 1


# --- what a person sees -----------------------------------------------------------------------

LINE = {
    "kind": "train",
    "step": 50,
    "epoch": 1.28,
    "loss": 1.2345,
    "error": 43.21,
    "lr": 0.1,
    "images_per_second": 1234.5,
}


def shown(total, done):
    """A progress display of `total` steps, as on_start makes it."""
    display = Progress()
    display.show(total, done)
    return display


def scored(display):
    training = SimpleNamespace(trainer=SimpleNamespace(task=SimpleNamespace(logged=lambda score: score)))
    display.on_test(training, "validation", {"error": 45.678})


def test_elsewhere_than_on_a_terminal_there_are_plain_lines_now_and_then(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    display = shown(100, 0)
    display.on_log(None, LINE)  # too soon after the start
    scored(display)
    monkeypatch.setattr(progresses, "EVERY", 0.0)
    display.on_log(None, LINE)
    said = sys.stderr.getvalue().splitlines()
    assert len(said) == 1
    expected = "step 50/100  epoch 1.3  loss 1.234  error 43.2 %  validation 45.68 %  lr 0.1  1234 images/s  ETA "
    assert said[0].startswith(expected)


def test_the_time_left_counts_larger_images(monkeypatch):
    """Half of the steps have 16 pixels; the rest, with 32, is four times the work."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progresses, "EVERY", 0.0)
    monkeypatch.setattr(progresses.time, "monotonic", iter([0.0, 60.0, 300.0]).__next__)
    schedule = Schedule(recipe_of("cifar-paper", length="100it", sizes="16@0,32@0.5"), 1000)
    assert [schedule.work(step) for step in (0, 1, 50, 51, 100)] == [0, 0.25, 12.5, 13.5, 62.5]
    assert Schedule(recipe_of("cifar-paper", length="100it"), 1000).work(30) == 30
    display = Progress()
    display.show(100, 0, schedule.work)
    display.on_log(None, LINE)
    display.on_log(None, {**LINE, "step": 100})
    assert [line.split()[-1] for line in sys.stderr.getvalue().splitlines()] == ["4:00", "0:00"]


def test_the_last_step_is_always_told(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    shown(50, 0).on_log(None, LINE)
    assert sys.stderr.getvalue().startswith("step 50/50 ")


def test_quiet_says_nothing(tmp_path, capfd):
    tiny.train_tiny(tmp_path, length="1it")
    assert capfd.readouterr() == ("", "")


def test_the_plan_comes_first_and_the_estimated_time_after_some_steps(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progresses, "TIMED", 3)
    tiny.train_tiny(tmp_path, quiet=False)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == (
        "resnets: preresnet20 on synthetic:256: recipe cifar-paper (the default for small images without weights), "
        "12 steps of 48 (2.25 epochs of 256 images)."
    )
    assert said[1].startswith("resnets: another number of threads than ")
    assert re.fullmatch(r"resnets: about 0:\d\d for the 8 steps left, at the speed of the first 4\.", said[2])


def test_a_terminal_gets_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "stderr", Terminal())
    display = shown(100, 20)
    scored(display)
    display.on_step(SimpleNamespace(step=50))
    display.on_log(None, LINE)
    display.close()
    said = sys.stderr.getvalue()
    assert "50/100" in said
    assert "loss 1.234" in said
    assert "validation 45.68 %" in said
