"""The loop trains a task that is no classification; stopped and resumed it ends with the same bytes."""

import os
import signal
from pathlib import Path

import pytest
import tiny
import torch
from autoencoder import Autoencoder, Redraw

from resnets import runs
from resnets.errors import UserError
from resnets.recipe import Recipe
from resnets.runs import ModuleKey
from resnets.training.loop import Trainer
from resnets.training.session import train
from resnets.training.task import split_batch
from resnets.weights.files import read_metadata

RECIPE = Recipe("test", length="9it", batch=12, lr=0.05, warmup="0it", milestones="6it", micro_batch=5)
OPTIONS = {"log_every": 2, "quiet": True, "checkpoint_every": 0}
CASES = {
    "sgd": {},
    "AdamW": {"optimizer": "AdamW", "lr": 0.01},
    "average": {"ema": 0.5, "optimizer": "rmsprop", "lr": 0.001},
}


def stop_at(monkeypatch, at):
    step = Trainer.step

    def stopping(self, i):
        if i == at:
            os.kill(os.getpid(), signal.SIGINT)
        step(self, i)

    monkeypatch.setattr(Trainer, "step", stopping)


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_another_task_is_stopped_and_resumed_with_the_same_bytes(tmp_path, monkeypatch, changes):
    whole = train(Redraw(), recipe=RECIPE, out=tmp_path / "whole", curve=True, **changes, **OPTIONS)
    with monkeypatch.context() as patch:
        stop_at(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            train(Redraw(), recipe=RECIPE, out=tmp_path / "cut", curve=True, **changes, **OPTIONS)
    (cut,) = runs.find(tmp_path / "cut")
    assert cut.result is None
    again = train(Redraw(), recipe=RECIPE, out=tmp_path / "cut", curve=True, **changes, **OPTIONS)
    assert again.path == cut.path
    tiny.assert_same(whole, again)


def test_metrics_and_results_have_the_numbers_of_the_task(tmp_path):
    run = train(Redraw(), recipe=RECIPE, out=tmp_path, **OPTIONS)
    lines = run.metrics()
    first = lines[0]
    assert list(first)[3:6] == ["loss", "drawing", "turning"]
    assert first["loss"] == pytest.approx(first["drawing"] + 0.1 * first["turning"] / 100)
    assert [line["step"] for line in lines if line["kind"] == "epoch"] == [4, 7, 9], "40 images in batches of 12"
    scored = [line for line in lines if line["kind"] == "validation"]
    assert len(scored) == 3
    assert "each" not in scored[0], "only numbers are logged"
    assert run.result["task"] == "redraw"
    assert run.result["train"].keys() == Redraw.numbers.keys()
    assert len(run.result["test"]["each"]) == 40
    assert run.curves.keys() == {"loss"}
    assert run.identity.network == ModuleKey("Autoencoder", "made by seed")
    assert run.identity.task == "redraw"
    assert read_metadata(run.weights)["module"] == "Autoencoder"
    net = Autoencoder()
    net.load_state_dict(tiny.weights(run))
    assert Redraw().score(net, "test", None)["each"] == pytest.approx(run.result["test"]["each"])


def test_two_processes_train_a_task_and_callbacks_are_called_in_the_first(tmp_path):
    """The weights are those of one process that takes both shares of a batch, up to rounding."""
    script = Path(tiny.__file__).with_name("two_ranks.py")
    (first, _), (second, _) = tiny.two_processes([str(tmp_path)], script=script)
    assert first.splitlines() == ["first", "each"] * 6
    assert second.splitlines() == ["each"] * 6
    (run,) = runs.find(tmp_path)
    one = Trainer(Redraw(), run.identity.recipe, 0, processes=2)
    for step in range(6):
        one.step(step)
    expected = one.net.state_dict()
    for name, tensor in tiny.weights(run).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6)


def test_what_a_task_cannot_have_is_refused(tmp_path):
    for words, options in {
        "a task needs a recipe": {},
        "brings its data and network": {"recipe": RECIPE, "depth": 20},
        "signal_every measures residual units": {"recipe": RECIPE, "signal_every": 2},
        "freeze counts the stages of a residual network": {"recipe": RECIPE, "freeze": 1},
    }.items():
        with pytest.raises(UserError, match=words):
            train(Redraw(), out=tmp_path, quiet=True, **options)


def test_a_batch_is_split_along_its_examples():
    images, boxes = torch.arange(10).view(5, 2), [[1], [2, 3], [], [4], [5]]
    parts = split_batch({"images": images, "pair": (boxes, images[:, 0])}, [2, 3])
    assert [part["images"].tolist() for part in parts] == [[[0, 1], [2, 3]], [[4, 5], [6, 7], [8, 9]]]
    assert [part["pair"][0] for part in parts] == [[[1], [2, 3]], [[], [4], [5]]]
    assert [part["pair"][1].tolist() for part in parts] == [[0, 2], [4, 6, 8]]
