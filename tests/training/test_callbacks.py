"""Callbacks are called at every moment of a training, and what they do is theirs."""

import pytest
import tiny
import torch

from resnets.errors import UserError
from resnets.training.callbacks import Callback
from resnets.training.plan import Plan


class Watch(Callback):
    def __init__(self):
        self.seen = []

    def on_start(self, training, plan):
        self.plan = plan
        self.seen.append(("start", training.step))

    def on_step(self, training):
        self.seen.append(("step", training.step))

    def on_test(self, training, split, score):
        self.seen.append((split, training.step, score["error"]))

    def on_epoch(self, training, means):
        self.seen.append(("epoch", training.step, means["loss"]))

    def on_checkpoint(self, training, path):
        assert path.exists()
        self.seen.append(("checkpoint", training.step))

    def on_end(self, training, result):
        assert training.run.result == result
        self.seen.append(("end", result["test"]["error"]))

    def close(self):
        self.seen.append(("close",))


def test_each_moment_is_seen_in_order(tmp_path):
    watch = Watch()
    run = tiny.train_tiny(tmp_path, callbacks=[watch], validation=40, checkpoint_every=3600)
    epochs = {line["step"]: line["loss"] for line in run.metrics() if line["kind"] == "epoch"}
    errors = {line["step"]: line["error"] for line in run.metrics() if line["kind"] == "validation"}
    expected = [("start", 0)]
    for step in range(1, 13):
        expected.append(("step", step))
        if step in epochs:
            expected += [("validation", step, errors[step]), ("epoch", step, epochs[step])]
    error = run.result["test"]["error"]
    expected += [("checkpoint", 12), ("test", 12, error), ("end", error), ("close",)]
    assert watch.seen == expected
    assert watch.plan == Plan(
        run.path, "preresnet20", "synthetic:256", 216, "cifar-paper",
        "the default for small images without weights", 48, 12, 0, watch.plan.notices,
    )  # fmt: skip
    (notice,) = watch.plan.notices
    assert notice.startswith("another number of threads than ")


def test_a_callback_does_not_change_the_run_and_its_lines_are_kept(tmp_path):
    class Norm(Callback):
        def on_epoch(self, training, means):
            training.log("norm", value=float(training.trainer.net.classifier.weight.detach().norm()))

    plain = tiny.train_tiny(tmp_path / "plain")
    run = tiny.train_tiny(tmp_path / "watched", callbacks=[Norm()])
    left, right = tiny.weights(run), tiny.weights(plain)
    assert all(torch.equal(left[name], right[name]) for name in right)
    assert tiny.curve(run) == tiny.curve(plain), "lines of unknown kinds are passed over"
    assert run.metrics_path.read_text().count('{"kind": "norm", "step": ') == 3
    assert run.result == plain.result


def test_an_exception_of_a_callback_ends_the_training_and_the_run_goes_on_later(tmp_path):
    class Fault(Watch):
        def on_step(self, training):
            if training.step == 5:
                raise ZeroDivisionError("mine")

    fault = Fault()
    with pytest.raises(ZeroDivisionError, match="mine"):
        tiny.train_tiny(tmp_path / "cut", callbacks=[fault], checkpoint_every=0)
    assert fault.seen[-1] == ("close",)
    tiny.assert_same(tiny.train_tiny(tmp_path / "cut"), tiny.train_tiny(tmp_path / "whole"))


def test_what_is_no_callback_is_refused(tmp_path):
    with pytest.raises(UserError, match="must be an instance of a subclass of Callback"):
        tiny.train_tiny(tmp_path, callbacks=[print])
    assert not list(tmp_path.iterdir())
