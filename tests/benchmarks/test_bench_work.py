"""What the contestants do, apart from how long it takes."""

import io
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import batches, contestants, fma, peers, roofline, worker
from resnets.native_build import NotBuiltError
from resnets.nn import build


@pytest.mark.parametrize("name", ["preresnet20", "resnet164", "preresnet50"])
def test_the_roofline_has_every_convolution(name):
    """Multiply-adds of the listed shapes, against torch's own count of floating-point operations."""
    spec = peers.same(name)
    listed = sum(out.numel() * conv.weight[0].numel() for conv, _, out in roofline.shapes(spec, 2))
    with FlopCounterMode(display=False) as counter:
        build(spec, device="meta")(torch.empty(2, 3, spec.input_size, spec.input_size, device="meta"))
    classifier = 2 * spec.widths[-1] * spec.expansion * spec.num_classes
    assert 2 * (listed + classifier) == counter.get_total_flops()


def test_the_roofline_runs_forward_and_backward():
    spec = peers.same("preresnet20")
    run = roofline.convolutions(spec, 2)
    with FlopCounterMode(display=False) as counter:
        run()
    listed = [out.numel() * conv.weight[0].numel() for conv, _, out in roofline.shapes(spec, 2)]
    # Forward, gradient of the weights, gradient of the input but for the images.
    assert counter.get_total_flops() == 2 * (3 * sum(listed) - listed[0])


@pytest.mark.parametrize("flipped", [False, True])
def test_an_image_through_pil(flipped):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    padded = np.zeros((40, 40, 3))
    padded[4:-4, 4:-4] = pixels
    expected = padded[7 : 7 + 32, 2 : 2 + 32]
    expected = (expected[:, ::-1] if flipped else expected) / 255
    expected = (expected - batches.MEAN) / batches.STD
    found = batches.pil(Image.fromarray(pixels), 7, 2, flipped)
    assert np.allclose(found.permute(1, 2, 0).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("contestant", ["ours", "PIL"])
def test_batches_are_alike_in_shape_and_statistics(contestant):
    batch = contestants.build(contestants.Job("batch", contestant, batch=64))()
    assert batch.shape == (64, 3, 32, 32)
    assert batch.dtype == torch.float32
    assert abs(batch.mean()) < 0.3
    assert 0.9 < batch.std() < 1.3  # uniform bytes, in units of CIFAR's deviation


@pytest.mark.parametrize("contestant", ["plain", "timm"])
def test_a_step_trains(contestant):
    """The loss on one batch falls, so there is a backward pass and an update in what is timed."""
    losses = []
    original = torch.nn.functional.cross_entropy

    def spy(*args):
        losses.append(original(*args))
        return losses[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "cross_entropy", spy)
        step = contestants.build(contestants.Job("step", contestant, "preresnet20", 8))
        for _ in range(6):
            step()
    assert losses[-1] < losses[0]


def served(requests, **job):
    answers = io.StringIO()
    worker.serve(job, io.StringIO(requests), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_worker_gets_ready_and_then_answers_each_request():
    ready, *rounds = served("\n\n", task="batch", contestant="ours", batch=4)
    assert set(ready) == {"build", "first", "repeats", "threads"}
    assert ready["threads"] == 1
    assert len(rounds) == 2
    for told in rounds:
        assert told["seconds"] > 0
        assert told["peak"] > 2**20


def test_a_worker_says_why_it_cannot():
    assert served("", task="batch", contestant="nobody") == [{"reason": "KeyError: 'nobody'"}]
    missing = ModuleNotFoundError("No module named 'keras'", name="keras")
    assert worker.why(missing) == "keras is not installed"
    assert worker.why(RuntimeError("out of memory\nat length")) == "RuntimeError: out of memory"


@pytest.mark.parametrize(("name", "share"), [("preresnet164", 0.63), ("preresnet110", 0.25)])
def test_tiles_of_4x4_pixels_need_a_quarter_of_the_products(name, share):
    spec = peers.same(name)
    shapes = roofline.shapes(spec, 1)
    direct = sum(out.numel() * conv.weight[0].numel() * (3 if i else 2) for i, (conv, _, out) in enumerate(shapes))
    assert fma.count_executed(spec, 1) / direct == pytest.approx(share, abs=0.03)


def test_a_compiler_leaves_all_chains_of_multiply_adds(tmp_path):
    """Chains that are equal would be compiled as one, and the peak would be too high."""
    compiler = os.environ.get("CXX", "c++")
    if platform.machine() != "x86_64" or not shutil.which(compiler):
        pytest.skip("the name of the instruction is that of x86-64, and a compiler is needed")
    source, code = Path(fma.__file__).with_name("fma.cpp"), tmp_path / "fma.s"
    subprocess.run([compiler, "-std=c++17", "-O3", "-mavx2", "-mfma", "-S", source, "-o", code], check=True)
    assert code.read_text().count("vfmadd") >= 12


def test_the_loop_of_multiply_adds_runs(monkeypatch):
    monkeypatch.setattr(fma, "MULTIPLY_ADDS", 1_000_000)
    try:
        run = fma.peak()
    except NotBuiltError as error:
        pytest.skip(str(error))
    assert run() > 0  # each sum goes to 1
