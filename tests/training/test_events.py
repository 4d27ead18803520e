"""TensorBoard's files hold what the metrics hold."""

import builtins

import pytest
from tiny import train_tiny

from resnets import UserError
from resnets.detection.detector import LOSSES
from resnets.runs import Run
from resnets.training.callbacks import TensorBoard
from resnets.training.session import train
from tests.detection.shapes import QUICK, TINY, write_shapes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own
def test_event_files_repeat_the_metrics(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train_tiny(tmp_path, tensorboard=True, every=5)
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    for kind, name in (("train", "loss"), ("train", "lr"), ("epoch", "error"), ("test", "error")):
        lines = [(line["step"], line[name]) for line in run.metrics() if line["kind"] == kind]
        found = [(event.step, event.value) for event in events.Scalars(f"{kind}/{name}")]
        assert [step for step, _ in found] == [step for step, _ in lines]
        assert [value for _, value in found] == pytest.approx([value for _, value in lines], rel=1e-6)
    last = [line["rms"] for line in run.metrics() if line["kind"] == "signal"][-1]
    found = [events.Scalars(f"signal/rms/{size}")[-1].value for size in (1, 2, 3)]
    assert found == pytest.approx(last, rel=1e-6), "a curve for each size of the maps"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_event_files_of_a_detector_hold_its_losses_and_its_precision(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = {**TINY, **QUICK, "length": "3it", "warmup": "0it", "log_every": 1, "quiet": True}
    word = write_shapes(tmp_path / "shapes", 2)
    run = train("faster_rcnn_resnet18", word, "detection-quick", out=str(tmp_path), tensorboard=True, **options)
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    names = [("train", name) for name in ("loss", "lr", *LOSSES)] + [("test", "map")]
    for kind, name in names:
        lines = [(line["step"], line[name]) for line in run.metrics() if line["kind"] == kind]
        found = [(event.step, event.value) for event in events.Scalars(f"{kind}/{name}")]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in lines]
        assert found


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'resnets\[tensorboard\]'"):
        TensorBoard(Run(tmp_path))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own
def test_a_link_is_not_followed(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="tensorboard is a symbolic link"):
        TensorBoard(Run(tmp_path))
    assert list((tmp_path / "elsewhere").iterdir()) == []
