"""What is timed: a job becomes a callable that does its work once.

Ours run as `resnets train` and `resnets eval` run them; the others as their users do.
"""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks import batches, detectors, fma, jpegs, peers, roofline
from resnets.engine import prepare, set_threads
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.memory_estimate import forecast
from resnets.nn import ResNet
from resnets.nn import build as build_net

Work = Callable[[], object]
MODES = ("fast", "lean", "min")  # of memory, with engine="auto"
_STEPS = 30  # of a round: enough to follow the load
LIBRARIES = ("timm", "torchvision")


@dataclass(frozen=True)
class Job:
    task: str  # "step", "busy", "inference", "batch", "jpeg", "detection" or "detection-step"
    contestant: str
    net: str = ""
    batch: int = 128
    side: int | None = None  # of the images, where it is not what the papers feed the net


def build(job: Job) -> Work:
    builders = {
        **{"step": _step, "busy": _busy, "inference": _inference, "batch": batches.build, "jpeg": jpegs.build},
        **{"detection": detectors.build, "detection-step": detectors.build},
    }
    return builders[job.task](job)


def _inputs(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    spec = peers.same(job.net)
    draw = torch.Generator().manual_seed(0)
    side = job.side or spec.input_size
    x = torch.randn(job.batch, 3, side, side, generator=draw)
    return x, torch.randint(spec.num_classes, (job.batch,), generator=draw)


def _ours(job: Job) -> ResNet:
    return build_net(peers.same(job.net), seed=0)


def foretold(job: Job) -> int | None:
    """What our forecast says of a process that is about to train; it speaks of our own modes alone."""
    if job.task != "step" or job.contestant not in MODES:
        return None
    return forecast(peers.same(job.net), job.batch, job.side, job.contestant).total


# --- training: forward, loss, backward, update ------------------------------------------------


# Ends with the process that started it, also if that is killed.
_KEEP_BUSY = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 99999 ]; do i=$((i + 1)); done; done"


def _busy(job: Job) -> Work:
    """Steps for a while, alone or beside a process that keeps one core busy."""
    who, _, where = job.contestant.partition(", ")
    step = _step(dataclasses.replace(job, task="step", contestant=who))
    if who in MODES:
        set_threads("auto")

    def work() -> None:
        neighbour = subprocess.Popen(["sh", "-c", _KEEP_BUSY]) if where == "busy" else None
        try:
            for _ in range(_STEPS):
                step()
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()

    return work


def _step(job: Job) -> Work:
    if job.contestant == "keras":
        return _keras_step(job)
    if job.contestant == "peak":
        return fma.peak()
    if job.contestant == "roofline":
        keep_freed_memory()
        return roofline.convolutions(peers.same(job.net), job.batch)
    ours = job.contestant in MODES
    model: nn.Module
    if job.contestant in LIBRARIES:
        model = peers.build(job.contestant, peers.same(job.net))
    elif ours:
        keep_freed_memory()
        # A round is often one step, and "auto" tries another number of threads now and then.
        set_threads(torch.get_num_threads())
        net = _ours(job).to(memory_format=torch.channels_last)
        model = prepare(net, engine="auto", memory=job.contestant)
    else:
        model = _ours(job)
    # The rate is small, so that a random task blows no net up.
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True if ours else None)
    x, y = _inputs(job)
    if ours:
        x = x.contiguous(memory_format=torch.channels_last)
    model.train()

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


# --- inference --------------------------------------------------------------------------------


def _inference(job: Job) -> Work:
    if job.contestant == "keras":
        return _keras_inference(job)
    x, _ = _inputs(job)
    predict: Callable[[torch.Tensor], torch.Tensor]
    if job.contestant in LIBRARIES:
        predict = peers.build(job.contestant, peers.same(job.net)).eval()
    elif job.contestant == "plain":
        predict = _ours(job).eval()
    else:
        from resnets.engine.inference import inference

        keep_freed_memory()
        predict = inference(_ours(job).eval(), engine=job.contestant, device=torch.device("cpu"))

    def run() -> None:
        with torch.inference_mode():
            predict(x)

    return run


# --- keras: its own ResNet-50, in its own layout ----------------------------------------------

_KERAS = {"resnet50": "ResNet50", "preresnet50": "ResNet50V2"}


def _keras(job: Job) -> tuple[Any, Any, Any]:
    import keras

    if job.net not in _KERAS:
        raise ValueError(f"keras has no {job.net}")
    model = getattr(keras.applications, _KERAS[job.net])(weights=None, classifier_activation=None)
    x, y = _inputs(job)
    return model, x.permute(0, 2, 3, 1).contiguous().numpy(), y.numpy()


def _keras_step(job: Job) -> Work:
    model, x, y = _keras(job)
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, 0.9, weight_decay=1e-4), loss)
    return lambda: model.train_on_batch(x, y)


def _keras_inference(job: Job) -> Work:
    model, x, _ = _keras(job)
    return lambda: model.predict_on_batch(x)
