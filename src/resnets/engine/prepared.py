"""Prepare a network for training: the same parameters and mathematics, with a faster runner for each unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from resnets.engine import require_mode
from resnets.engine.memory_estimate import choose_mode, segments
from resnets.engine.native.unit import NativeUnit
from resnets.engine.native.units import NativeUnits, join_units
from resnets.engine.recompute import Recompute
from resnets.engine.runners import Choice, Ends, choose_ends, choose_runners
from resnets.engine.threads import follow, hold
from resnets.engine.watch import Watch
from resnets.errors import UserError
from resnets.nn import ResNet, Unit, require_units
from resnets.nn.structure import find_change


def prepare(
    net: ResNet,
    *,
    engine: str = "auto",
    memory: str = "fast",
    batch: int | None = None,
    size: int | tuple[int, int] | None = None,
) -> ResNet:
    """A network that computes what `net` does, faster: its parameters, buffers and layers are those of `net`.

    `engine="plain"` is `net` itself, "compiled" gives its units to torch.compile. `memory` says what training keeps
    for the backward pass: see `resnets.engine.MODES`; "auto" is the fastest that fits, and needs to know the `batch`
    (and the `size` of the images, if it is not the papers'). In evaluation and without gradients `net` itself is run.
    The result can be used wherever `net` can: its state dict, attributes and mode are those of `net`.

    A unit that is not exactly what `net.spec` describes (another layer, a hook, a subclass) is run by PyTorch, also if
    it is changed later; `choices` of the result holds the runner of each unit and the reason.
    """
    require_mode(engine, memory)
    require_units(net, "prepare runs")
    if isinstance(net, Prepared):
        net = net.original
    if engine == "plain":
        return net
    if memory == "auto":
        memory = _choose_memory(net, batch, size)
    return Prepared(net, memory, compiled=engine == "compiled")


def _choose_memory(net: ResNet, batch: int | None, size: int | tuple[int, int] | None) -> str:
    if batch is None:
        raise UserError("memory='auto' needs to know the batch: give batch=, or choose fast, lean or min.")
    if change := find_change(net):
        raise UserError(
            f"memory='auto' estimates the {net.spec.name} that net.spec describes, and this net was changed "
            f"({change.sentence}): choose fast, lean or min."
        )
    return choose_mode(net.spec, batch, size, next(net.parameters()).device)


class Prepared(ResNet):
    """`net` whose units are run as `choices` says, in segments of `lengths` units."""

    def __init__(self, net: ResNet, memory: str, compiled: bool = False) -> None:
        nn.Module.__init__(self)
        # `net` is no child of this module: both have the same children, in the same dictionaries.
        self.__dict__.update(net=net, memory=memory, compiled=compiled)
        for shared in ("_parameters", "_buffers", "_modules"):
            self.__dict__[shared] = net.__dict__[shared]
        self._choose()

    @property
    def original(self) -> ResNet:
        return self.__dict__["net"]

    @property
    def training(self) -> bool:
        return self.original.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "net" in self.__dict__:
            self.original.training = mode

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "net" not in self.__dict__:  # while a copy is made
                raise
            return getattr(self.original, name)

    def _choose(self) -> None:
        net = self.original
        device = next(net.parameters()).device.type
        choices = choose_runners(net, self.memory, self.compiled, device)
        leaves_end = any(choice.runner in ("lean", "native") for choice in choices)
        lean = all(choice.runner in ("lean", "native", "plain") for choice in choices) and leaves_end
        lengths = _lengths(net, device) if lean and self.memory == "min" else (len(choices),)
        ends = choose_ends(net, self.memory, self.compiled, device)
        recognized = [unit for unit, choice in zip(net.units, choices, strict=True) if choice.runner != "plain"]
        read = [part for part, run in zip((net.stem, net.classifier), ends[::2], strict=True) if run is not part]
        frame = [net, net.units, *(module for part in (*read, net.last) for module in part.modules())]
        watched = [*frame, *(m for unit in recognized for m in _list_read_modules(unit))]
        self.__dict__.update(
            choices=choices,
            lengths=lengths,
            parts=[*_segments(net.units, choices, lengths)],
            ends=ends,
            watch=Watch(watched),
            runs_units=bool(recognized),
            dependence=_find_thread_dependence(choices, ends),
        )

    def find_thread_dependence(self) -> str | None:
        """Why the bytes of a training step depend on the number of threads, or None if they do not.

        Layers that a user freezes, other dtypes and autocast are PyTorch's too; they always get all threads.
        """
        return self.dependence

    def forward(self, x: Tensor) -> Tensor:
        net = self.original
        if not (net.training and torch.is_grad_enabled() and type(x) is Tensor) or _is_observed():
            hold()
            return net(x)
        if not self.watch.is_unchanged():
            self._choose()
        if not self.runs_units:
            hold()
            return net(x)
        net.spec.check_images(x.shape)
        hold() if self.dependence else follow(("train", x.shape))
        x = self.ends.stem(x)
        for part in self.parts:
            x = part(x)
        return self.ends.classifier(self.ends.last(x).mean((2, 3)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the runners: they hold compiled code, and are chosen again where a copy or a pickle is made whole."""
        return {name: value for name, value in self.__dict__.items() if name not in _CHOSEN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._choose()


def _list_read_modules(unit: nn.Module) -> list[nn.Module]:
    """The modules of a unit that the runners read. They call a user's own shortcut, so it may change."""
    assert isinstance(unit, Unit)
    called = set(unit.shortcut.modules()) if unit.spec.shortcut.is_custom else set()
    return [module for module in unit.modules() if module not in called]


_CHOSEN = ("choices", "lengths", "parts", "ends", "watch", "runs_units", "dependence")


def _find_thread_dependence(choices: list[Choice], ends: Ends) -> str | None:
    for i, choice in enumerate(choices):
        if choice.runner != "native" or choice.run.unit.spec.shortcut.is_custom:  # type: ignore[attr-defined]
            return f"PyTorch runs unit {i}"
    for name, part in ends._asdict().items():
        if isinstance(part, nn.Module) and any(True for _ in part.parameters()):
            return f"PyTorch runs the {name}"
    return None


def _is_observed() -> bool:
    """Whether the layers are being traced, or all modules have hooks: then each layer must be called."""
    return torch.compiler.is_compiling() or torch_modules._has_any_global_hook()  # type: ignore[no-untyped-call]


def _lengths(net: ResNet, device: str) -> tuple[int, ...]:
    """The number of units in each segment; about as many as segments, if the net has other units than its spec."""
    count = len(net.units)
    lengths = segments(net.spec, device)
    if sum(lengths) == count:
        return lengths
    step = math.isqrt(count - 1) + 1 if count else 1
    return tuple(min(step, count - first) for first in range(0, count, step))


def _segments(
    units: nn.Sequential, choices: list[Choice], lengths: tuple[int, ...]
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Chains of runners. All but the last are run again in the backward pass, which begins right after the last.

    Units that PyTorch runs are never run again, as they may have side effects.
    """
    if len(lengths) == 1:
        yield partial(_run, join_units([choice.run for choice in choices]))
        return
    first = 0
    for length in lengths:
        last = first + length
        for plain, group in groupby(range(first, last), key=lambda i: choices[i].runner == "plain"):
            places = list(group)
            chain = partial(_run, join_units([choices[i].run for i in places]))
            again = not plain and places[-1] + 1 < len(choices)
            yield Recompute(chain, [units[i] for i in places]) if again else chain
        first = last


def _run(runners: list[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    sums = None  # for the BN of the next unit, where a unit's kernels have made them
    for run in runners:
        x, sums = run.with_sums(x, sums) if isinstance(run, (NativeUnit, NativeUnits)) else (run(x), None)
    return x
