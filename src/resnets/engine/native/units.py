"""Units in a row as one function, forward and backward: one call each into `units.h`.

The calls, allocations and nodes of autograd of a thousand layers take as long as their kernels where maps are small.
All units have the shape of x, and the identity, a gate or nothing as their shortcut. The bytes are those of
`branch.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from resnets.engine.arena import empty_map
from resnets.engine.native.branch import Branch, Step
from resnets.engine.native.kernels import ACT, LARGE, RAW, RELU, Kernels, fields, takes_one_pass
from resnets.engine.native.unit import NativeUnit, is_plain
from resnets.engine.threads import count_threads
from resnets.nn.shortcuts import ExclusiveGate, Identity, Plain, ShortcutGate

_LAST = torch.channels_last
_TAIL_RELU = {"": 0, "first": 1, "last": 2}
_GATES = {Identity: 0, Plain: 0, ShortcutGate: 1, ExclusiveGate: 2}  # the shortcuts of units in a row
_Runner = Callable[[Tensor], Tensor]
_OF_NORM = ("weight", "bias", "running_mean", "running_var")


class _Layer(ctypes.Structure):
    _fields_ = fields("into out side way one_pass", "", "eps momentum")


class _Unit(ctypes.Structure):
    _fields_ = fields("layers adds tail relu gate gate_relu", "", "eps momentum")


class _Units(ctypes.Structure):
    _fields_ = fields("n height width channels threads large count", "unit layer tensors x maps statistics y")


def join_units(runners: Sequence[_Runner]) -> list[_Runner]:
    """The runners with units in a row joined, where one call can run them."""
    joined: list[_Runner] = []
    for shape, group in groupby(runners, key=_find_shape):
        units = list(group)
        joined += units if shape is None else [NativeUnits(units)]  # type: ignore[arg-type]
    return joined


def _find_shape(run: _Runner) -> int | None:
    """The channels of a unit that can be joined with others, or None."""
    if not isinstance(run, NativeUnit):
        return None
    branch, unit = run.branch, run.unit
    convs = [step.conv for step in branch.steps]
    whole = run.shared is None and run.after is None and branch.pad is None and branch.times == 1
    same = type(unit.resize) is nn.Identity and all(conv.stride == (1, 1) for conv in convs)
    channels = convs[-1].out_channels
    joins = type(unit.shortcut) in _GATES and convs[0].in_channels == channels
    moves = all(bn is None or bn.momentum is not None for bn in branch.norms)
    return channels if whole and same and joins and moves else None


class NativeUnits:
    """Units in a row. What they cannot run together, each of them runs or leaves to PyTorch."""

    def __init__(self, units: list[NativeUnit]) -> None:
        self.units = units
        branches = [unit.branch for unit in units]
        self.kernels: Kernels = branches[0].kernels
        convs: list[nn.Conv2d] = [step.conv for branch in branches for step in branch.steps]
        self.norms = [bn for branch in branches for bn in branch.norms if bn is not None]
        self.layer = (_Layer * len(convs))(*(_layer(step) for branch in branches for step in branch.steps))
        self.unit = (_Unit * len(units))(*map(_unit, branches))
        last = branches[-1]
        self.sums = last.adds and last.tail is None and last.gate is None  # of y
        self.keeps_y = last.relu == "last" or last.gate_relu
        self.channels = convs[-1].out_channels
        self.made = [_list_made(branch) for branch in branches]  # channels of the maps of each unit
        self.made[-1] = self.made[-1][:-1]  # y is apart
        self.middle = max((conv.in_channels for branch in branches for conv in _inner(branch)), default=0)
        relus = [branch.relu for branch in branches]
        self.whole = any(relu != "last" for relu in relus) + any(relus)  # maps like x that the backward pass needs
        self.whole += 3 * any(branch.gate is not None for branch in branches)
        self.places = [place for branch in branches for place in _list_tensors(branch)]
        self.learned = [place for place in self.places if place[1] in _OF_NORM[:2]]

    def __call__(self, x: Tensor) -> Tensor:
        return self.with_sums(x, None)[0]

    def with_sums(self, x: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor | None]:
        tensors = [place[name] for place, name in self.places]
        if not self._suits(x, tensors):
            for unit in self.units:
                x, sums = unit.with_sums(x, sums)
            return x, sums
        if self.norms:
            torch._foreach_add_([norm._buffers["num_batches_tracked"] for norm in self.norms], 1)  # type: ignore[misc]
        parameters = [place[name] for place, name in self.learned]
        return _RunUnits.apply(self, tensors, sums, x, *parameters)  # type: ignore[no-untyped-call]

    def _suits(self, x: Tensor, tensors: list[Tensor]) -> bool:
        """As `NativeUnit` decides it, for a thousand layers at once."""
        return (
            type(x) is Tensor
            and is_plain(x)
            and x.numel() != x.shape[1]  # one value per channel, which `norm_forward` refuses
            and not torch.is_autocast_enabled("cpu")
            and all(norm.training for norm in self.norms)
            and set(map(attrgetter("dtype", "is_cpu"), tensors)) == {(torch.float32, True)}
            and all(place[name].requires_grad for place, name in self.learned)
            and all(t.is_contiguous() for t in tensors if t.dim() == 1)
        )

    def describe(
        self, tensors: Iterable[Tensor], x: Tensor, maps: list[Tensor], others: tuple[Tensor, Tensor]
    ) -> tuple[_Units, list[Any]]:
        """What the library reads, and what must live as long. The others are the statistics and y."""
        own = [t.contiguous(memory_format=_LAST) if t.dim() == 4 else t for t in tensors]
        pointers, places = _list_pointers(own), _list_pointers(maps)
        n, channels, height, width = x.shape
        made = _Units(
            *(n, height, width, channels, count_threads(), LARGE, len(self.units)),
            *(ctypes.addressof(self.unit), ctypes.addressof(self.layer), ctypes.addressof(pointers)),
            *(x.data_ptr(), ctypes.addressof(places), *map(Tensor.data_ptr, others)),
        )
        return made, [own, pointers, places]


class _RunUnits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, units: NativeUnits, tensors: list[Tensor], sums: Tensor | None, x: Tensor, *_: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        x = x.contiguous(memory_format=_LAST)
        pixels = x.numel() // x.shape[1]
        # Units have places of one size, which can be used again for others; one place for all would leave holes.
        maps = [_empty(sum(_aligned(pixels * channels) for channels in made)) for made in units.made]
        statistics = torch.empty(sum(7 * norm.num_features // 2 for norm in units.norms), dtype=torch.float64)
        y = empty_map(x.shape)
        sums_of_y = torch.empty(2, x.shape[1], dtype=torch.float64) if units.sums else None
        described, _held = units.describe(tensors, x, maps, (statistics, y))
        units.kernels.units_forward(described, sums, sums_of_y)
        ctx.units, ctx.tensors = units, tensors
        ctx.set_materialize_grads(False)
        filters = (tensor for tensor in tensors if tensor.dim() == 4)
        ctx.save_for_backward(x, statistics, y if units.keeps_y else None, *maps, *filters)
        if sums_of_y is not None:
            ctx.mark_non_differentiable(sums_of_y)
        return y, sums_of_y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        units: NativeUnits = ctx.units
        x, statistics, y, *rest = ctx.saved_tensors  # and PyTorch checks that the filters are what they were
        maps = rest[: len(units.units)]
        grad = grad.contiguous(memory_format=_LAST)
        pixels = x.numel() // x.shape[1]
        gradients = torch.empty(sum(place[name].numel() for place, name in units.learned))
        of_x = empty_map(x.shape)
        room = _empty(units.whole * _aligned(pixels * units.channels) + 2 * _aligned(pixels * units.middle))
        described, _held = units.describe(ctx.tensors, x, maps, (statistics, x if y is None else y))
        units.kernels.units_backward(described, grad, gradients, of_x, room, middle=units.middle)
        learned = (place[name] for place, name in units.learned)
        return None, None, None, of_x, *_split(gradients, learned)


def _split(gradients: Tensor, parameters: Iterable[Tensor]) -> Iterable[Tensor]:
    """The gradients of parameters as parts of one piece of memory."""
    at = 0
    for parameter in parameters:
        shape = parameter.shape
        stride = (1,)
        if len(shape) == 4:
            _, into, side, _ = shape
            stride = (side * side * into, 1, side * into, into)  # type: ignore[assignment]
        yield gradients.as_strided(shape, stride, at)
        at += parameter.numel()


def _empty(floats: int) -> Tensor:
    """Memory for maps, one behind the other."""
    return empty_map((1, 1, 1, floats))


def _aligned(floats: int) -> int:
    return -(-floats // 16) * 16


def _list_pointers(tensors: list[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*map(Tensor.data_ptr, tensors))


def _inner(branch: Branch) -> Iterable[nn.Conv2d]:
    """The convolutions whose input no other unit reads."""
    return [step.conv for step in branch.steps[1:]]


def _list_made(branch: Branch) -> list[int]:
    """The channels of each map that a unit makes, in their order."""
    made = [step.conv.out_channels for step in branch.steps] + ([branch.tail.num_features] if branch.tail else [])
    return made + 2 * ([] if branch.gate is None else made[-1:])


def _list_tensors(branch: Branch) -> list[tuple[dict[str, Any], str]]:
    """Where the tensors of a unit are found in its layers, which may get other tensors, in the order of `units.h`."""
    found: list[tuple[dict[str, Any], str]] = []
    for step in branch.steps:
        found.append((step.conv._parameters, "weight"))
        found += [] if step.bn is None else _list_tensors_of_norm(step.bn)
    found += [] if branch.tail is None else _list_tensors_of_norm(branch.tail)
    return found + ([] if branch.gate is None else [(branch.gate.gate._parameters, name) for name in _OF_NORM[:2]])


def _list_tensors_of_norm(bn: nn.BatchNorm2d) -> list[tuple[dict[str, Any], str]]:
    return [(bn._parameters if name in bn._parameters else bn._buffers, name) for name in _OF_NORM]


def _layer(step: Step) -> _Layer:
    conv, bn = step.conv, step.bn
    way = RELU if step.relu else RAW
    eps, momentum = (0.0, 0.0) if bn is None else (bn.eps, bn.momentum)
    if bn is not None:
        way = ACT
    side = conv.kernel_size[0]
    return _Layer(conv.in_channels, conv.out_channels, side, way, takes_one_pass(conv.weight, 1), eps, momentum)


def _unit(branch: Branch) -> _Unit:
    tail = branch.tail
    eps, momentum = (0.0, 0.0) if tail is None else (tail.eps, tail.momentum)
    gate = _GATES[type(branch.gate)] if branch.gate is not None else 0
    numbers = (len(branch.steps), branch.adds, tail is not None, _TAIL_RELU[branch.relu], gate, branch.gate_relu)
    return _Unit(*numbers, eps, momentum)
