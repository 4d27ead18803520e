"""A network made ready to run: the same parameters, the same mathematics, a runner for each unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from resnets.engine import require_mode
from resnets.engine.again import Again
from resnets.engine.available import available
from resnets.engine.lean import lean_act
from resnets.engine.memory import fastest, segments
from resnets.engine.native.unit import NativeUnit
from resnets.engine.plan import Choice, choose
from resnets.errors import UserError
from resnets.nn import ResNet


def prepare(
    net: ResNet,
    *,
    engine: str = "auto",
    memory: str = "fast",
    batch: int | None = None,
    size: int | tuple[int, int] | None = None,
) -> ResNet | Prepared:
    """A module that computes what `net` does, with the parameters and buffers of `net`.

    `engine="plain"` is `net` itself, "compiled" gives its units to torch.compile. `memory` says what training keeps
    for the backward pass: see `resnets.engine.MODES`; "auto" is the fastest that fits, and needs to know the `batch`
    (and the `size` of the images, if it is not the papers'). In evaluation and without gradients `net` itself is run.
    State dicts are those of `net`. Hooks on layers inside a unit are called by "plain" alone.
    """
    require_mode(engine, memory)
    if engine == "plain":
        return net
    if engine == "compiled":
        return Prepared(net, "fast", compiled=True)
    if memory == "auto":
        if batch is None:
            raise UserError("memory='auto' needs to know the batch: give batch=, or choose fast, lean or min.")
        device = net.classifier.weight.device
        memory = fastest(net.spec, batch, size, available(device), device.type).mode
    return Prepared(net, memory)


class Prepared(nn.Module):
    """A network whose units are run as `choices` says, in segments of `lengths` units."""

    def __init__(self, net: ResNet, memory: str, compiled: bool = False) -> None:
        super().__init__()
        self.net, self.memory, self.compiled = net, memory, compiled
        self._choose()

    def _choose(self) -> None:
        net, memory, compiled = self.net, self.memory, self.compiled
        device = net.classifier.weight.device.type
        self.choices = [choose(unit, memory, compiled, device) for unit in net.units]  # type: ignore[arg-type]
        lean = all(choice.runner in ("lean", "native") for choice in self.choices)
        self.lengths = segments(net.spec, device) if lean and memory == "min" else (len(self.choices),)
        self.parts = [*_segments(net.units, self.choices, self.lengths)]
        self.end = partial(lean_act if lean else nn.Module.__call__, net.last)

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        if not (net.training and torch.is_grad_enabled()):
            return net(x)
        x = net.stem(net.checked(x))
        for part in self.parts:
            x = part(x)
        return net.forward_head(self.end(x))

    def __getstate__(self) -> dict[str, Any]:
        """Without the runners: they hold compiled code, and are chosen anew where a copy or a pickle is made whole."""
        return {name: value for name, value in self.__dict__.items() if name not in _CHOSEN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._choose()


_CHOSEN = ("choices", "lengths", "parts", "end")


def _segments(
    units: nn.Sequential, choices: list[Choice], lengths: tuple[int, ...]
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Chains of runners, run again in the backward pass: all but the last, which is followed by it at once."""
    first = 0
    for length in lengths:
        last = first + length
        chain = partial(_run, [choice.run for choice in choices[first:last]])
        yield chain if last == len(choices) else Again(chain, list(units)[first:last])
        first = last


def _run(runners: list[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    sums = None  # for the BN of the next unit, where a unit's kernels have made them
    for run in runners:
        x, sums = run.with_sums(x, sums) if isinstance(run, NativeUnit) else (run(x), None)
    return x
