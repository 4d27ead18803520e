"""Explain what the engine chooses on this machine for a network in training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch

from resnets.chain import Chain, NetworkSpec
from resnets.engine import device as devices
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.memory_estimate import fastest, segments
from resnets.engine.runners import choose_runners
from resnets.engine.system_memory import available
from resnets.nn import ResNet, build


class Line(NamedTuple):
    what: str
    value: str
    reason: str


def explain(net: NetworkSpec | ResNet, batch: int, size: int | tuple[int, int] | None = None) -> Iterator[Line]:
    """A line for each choice, for training on batches of images of `size`.

    A unit that is not what the network's spec describes has the runner `plain`, and the reason says what differs.
    """
    spec = net.spec if isinstance(net, ResNet) else net
    device = devices.choose("auto")
    yield Line("device", device.type, "no accelerator here" if device.type == "cpu" else "an accelerator")
    yield Line("layout", "channels_last", "convolutions are fastest so; a recipe can say otherwise")
    if device.type == "cpu":
        kept = keep_freed_memory()
        why = "a fresh page costs more than the arithmetic on it" if kept else "not glibc, or RESNETS_KEEP_MEMORY=0"
        yield Line("allocator", "freed memory is kept" if kept else "the system's", why)
        why = "OMP_NUM_THREADS" if "OMP_NUM_THREADS" in os.environ else "torch's choice"
        yield Line("threads", f"up to {torch.get_num_threads()}", f"{why}; --threads auto follows the load")
    fused = device.type != "mps"
    yield Line(
        "optimizer", "fused" if fused else "default", "one pass over the weights" if fused else "mps has no other"
    )
    why = "no faster on CPUs" if device.type == "cpu" else "not measured on accelerators"
    yield Line("torch.compile", "no", f"{why}; --engine compiled gives it the units")
    yield Line("precision", "float32", "the papers'; a recipe can say bf16 or fp16")
    room = available(device)
    estimate = fastest(spec, batch, size, room, device.type)
    known = "unknown" if room is None else f"{room >> 20:,} MiB"
    fits = "" if estimate.fits(room) else "; none fits"
    why = f"takes {estimate.added >> 20:,} MiB more with batches of {batch}; available: {known}{fits}"
    yield Line("memory", estimate.mode, why)
    if isinstance(spec, Chain):
        yield Line("layers", "plain", "PyTorch computes a network without residual units")
        return
    if estimate.mode == "min":
        lengths = segments(spec, device.type)
        units = f"{min(lengths)} to {max(lengths)} units"
        yield Line("segments", str(len(lengths)), f"of {units}, all but the last run again in the backward pass")
    choices = choose_runners(
        net if isinstance(net, ResNet) else build(spec, device="meta"), estimate.mode, device=device.type
    )
    first = 0
    for (runner, reason), alike in groupby(choices, key=lambda choice: (choice.runner, choice.reason)):
        last = first + len(list(alike)) - 1
        yield Line(f"unit {first}" if first == last else f"units {first} to {last}", runner, reason)
        first = last + 1
