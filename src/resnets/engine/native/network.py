"""A network in testing as one call into `network.cpp`: its layers as a list, its filters repacked, its buffers planned.

`Layers` collects the layers, and joins each with the addition, ReLU and second activation behind it. `Network` repacks
their filters once. For every size of images it then plans buffers: maps whose last reader is done make room for
others, so memory does not grow with depth.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from resnets.engine.native.build import WAYS
from resnets.engine.threads import count_threads
from resnets.native_build import Library, load_or_say, open_checked

IMAGES = 0  # the map that the first layer reads
_WIDEST_4 = 128  # channels; filters of F(4x4, 3x3) are 4 times as large as 3x3, and wider ones leave the caches
_GROUP = 8  # images that one thread takes through the network at a time, at most
_SIZES = 4  # sizes of images whose plans are kept
FIRST, CONV, WINOGRAD2, WINOGRAD4, POOL, RESIZE, PASS, MEAN = range(8)  # kinds, as in network.cpp
_Pointer, _Number = ctypes.c_void_p, ctypes.c_int64

# Winograd's transforms of filters. F(4x4, 3x3) at the points 0, +-sqrt(1/2), +-sqrt(2) and infinity.
_HALF, _ROOT = math.sqrt(0.5), math.sqrt(2.0)
_G = {
    2: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    4: (
        (1, 0, 0),
        (-2 / 3, -2 / 3 * _HALF, -1 / 3),
        (-2 / 3, 2 / 3 * _HALF, -1 / 3),
        (1 / 6, 1 / 6 * _ROOT, 1 / 3),
        (1 / 6, -1 / 6 * _ROOT, 1 / 3),
        (0, 0, 1),
    ),
}


# --- the list of layers -----------------------------------------------------------------------


class Affine(NamedTuple):
    """relu(scale y + shift) of the map y that a layer makes, as a second map."""

    scale: Tensor
    shift: Tensor
    relu: bool
    y: int


@dataclass
class Step:
    """A layer: y = relu(v + alpha add), where v follows from x by its kind. Maps are numbers."""

    kind: int
    x: int
    y: int
    segment: int
    weight: Tensor | None = None
    bias: Tensor | None = None
    gain: float = 1.0  # v is multiplied by it
    side: int = 1
    stride: int = 1
    padding: int = 0
    front: int = 0
    average: bool = False
    add: int | None = None
    alpha: float = 1.0
    relu: bool = False
    also: Affine | None = None

    @property
    def takes_addition(self) -> bool:
        return self.kind == CONV and self.add is None and not self.relu and self.also is None

    def size(self, length: int) -> int:
        """The height or width of the map that is made of one of `length`."""
        if self.kind == MEAN:
            return 1
        if self.kind == RESIZE:
            return -(-length // self.stride)
        return (length + 2 * self.padding - self.side) // self.stride + 1


class Layers:
    """The layers of a network in order. Each method takes maps, adds a layer or joins one, and returns its map."""

    def __init__(self, channels: int) -> None:
        self.steps: list[Step] = []
        self.channels = [channels]  # of each map
        self.segments = 1
        self._maker: dict[int, Step] = {}  # of each map but the images
        self._read: set[int] = set()

    def begin_segment(self) -> None:
        """The maps of the layers from here on have another size."""
        self.segments += 1

    def conv(self, x: int, weight: Tensor, bias: Tensor | None, stride: int = 1, padding: int = 0) -> int:
        out, _, side, _ = weight.shape
        return self._add(CONV, x, out, weight=weight, bias=bias, side=side, stride=stride, padding=padding)

    def pool(self, x: int, side: int, stride: int, padding: int) -> int:
        """The maximum of each window."""
        return self._add(POOL, x, self.channels[x], side=side, stride=stride, padding=padding)

    def resize(self, x: int, zeros: tuple[int, int], stride: int, average: bool) -> int:
        """Option A: every second pixel or the mean of each square, between zero channels."""
        out = self.channels[x] + sum(zeros)
        return self._add(RESIZE, x, out, stride=stride, front=zeros[0], average=average)

    def mean(self, x: int) -> int:
        return self._add(MEAN, x, self.channels[x])

    def keep(self, x: int) -> None:
        """Somebody reads x as it is."""
        self._read.add(x)

    def relu(self, x: int) -> int:
        step = self._maker.get(x)
        if step is None or step.also is not None or x in self._read:
            return self.scale_shift(x, torch.ones(self.channels[x]), torch.zeros(self.channels[x]), True)
        step = self._find_maker(x)
        step.relu = True
        return step.y

    def scale_shift(self, x: int, scale: Tensor, shift: Tensor, relu: bool) -> int:
        step = self._find_maker(x)
        y = self._new_map(self.channels[x], step)
        step.also = Affine(scale, shift, relu, y)
        return y

    def _find_maker(self, x: int) -> Step:
        """The layer that makes x and can make a second map of it, or a new one that copies x."""
        step = self._maker.get(x)
        if step is None or step.kind in (RESIZE, MEAN) or step.also is not None:
            step = self._maker[self._add(PASS, x, self.channels[x])]
        return step

    def sum(self, x: int, r: int, alpha: float = 1.0, beta: float = 1.0) -> int:
        """alpha x + beta r."""
        step = self._maker[r]
        if not step.takes_addition or r in self._read or not self._is_made_before(x, step):
            step = self._maker[self._add(PASS, r, self.channels[r])]
        step.add, step.alpha, step.gain = x, alpha, beta
        self._read.add(x)
        return step.y

    def _is_made_before(self, x: int, step: Step) -> bool:
        return x == IMAGES or self._maker[x].y < step.y

    def _add(self, kind: int, x: int, channels: int, **options: object) -> int:
        step = Step(kind, x, len(self.channels), self.segments - 1, **options)  # type: ignore[arg-type]
        self.steps.append(step)
        self._read.add(x)
        return self._new_map(channels, step)

    def _new_map(self, channels: int, step: Step) -> int:
        self.channels.append(channels)
        self._maker[len(self.channels) - 1] = step
        return len(self.channels) - 1


# --- what the library reads -------------------------------------------------------------------


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = [
        *_fields(_Number, "kind segment from_ to add also into height width out rows columns"),
        *_fields(_Number, "side stride padding front average relu also_relu"),
        *_fields(ctypes.c_double, "alpha gain"),
        *_fields(_Pointer, "filters bias scale shift"),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = _fields(_Number, "size segment")


class _Network(ctypes.Structure):
    _fields_ = [
        *_fields(_Number, "layers buffers segments group classes scores"),
        *_fields(_Pointer, "layer buffer groups"),
    ]


class _Images(ctypes.Structure):
    _fields_ = [*_fields(_Pointer, "data"), *_fields(_Number, "count channels n c h w")]


class Packed(NamedTuple):
    """A step with its kind for the library and its numbers as the library reads them."""

    step: Step
    kind: int
    filters: Tensor | None
    bias: Tensor | None
    scale: Tensor | None
    shift: Tensor | None

    @property
    def weight(self) -> int:
        """How many numbers its filters have."""
        return 0 if self.filters is None else self.filters.numel()


class Plan(NamedTuple):
    """The layers and buffers for images of one size."""

    network: _Network
    layers: ctypes.Array[_Layer]
    buffers: ctypes.Array[_Buffer]
    groups: ctypes.Array[ctypes.c_int64]


class Network:
    """The layers of a network, ready to compute the scores of images. `scores` is the last map."""

    def __init__(self, library: Functions, layers: Layers, scores: int) -> None:
        self.library, self.layers, self.scores = library, layers, scores
        self.packed = [self._pack(step) for step in layers.steps]
        self._plans: dict[tuple[int, int], Plan] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """The scores of float32 images on the CPU, on as many threads as PyTorch has."""
        count, channels, height, width = x.shape
        plan = self._find_plan(height, width)
        found = torch.empty(count, self.layers.channels[self.scores], dtype=torch.float32, device="cpu")
        images = _Images(x.data_ptr(), count, channels, *x.stride())
        self.library.run(plan.network, images, found)
        return found

    # --- filters --------------------------------------------------------------------------------

    def _pack(self, step: Step) -> Packed:
        pad, also = self.library.pad, step.also
        bias = filters = None
        kind = step.kind
        if step.weight is not None:
            kind = choose_kind(step)
            weight = step.weight.detach() if step.gain == 1 else step.weight.detach().double() * step.gain
            filters = self.library.pack(_to_matrices(weight, kind, pad))
            bias = weight.new_zeros(len(weight)) if step.bias is None else step.bias.detach() * step.gain
            bias = _pad(bias.float(), 0, pad)
        scale, shift = (_pad(v.flatten(), 0, pad) for v in also[:2]) if also else (None, None)
        return Packed(step, kind, filters, bias, scale, shift)

    # --- plans ----------------------------------------------------------------------------------

    def _find_plan(self, height: int, width: int) -> Plan:
        plan = self._plans.get((height, width))
        if plan is None:
            plan = self._plan(height, width)
            kept = list(self._plans.items())[1 - _SIZES :]
            self._plans = dict([*kept, ((height, width), plan)])  # another thread may be reading the old one
        return plan

    def _plan(self, height: int, width: int) -> Plan:
        sizes = _find_sizes(self.layers.steps, height, width)
        channels = [self.library.pad(c) for c in self.layers.channels]
        room = Room(self.layers.steps, self.scores, [c * h * w for c, (h, w) in zip(channels, sizes, strict=True)])
        layers = (_Layer * len(self.packed))(
            *(_write_layer(p, room, sizes, channels, self.layers) for p in self.packed)
        )
        buffers = (_Buffer * len(room.buffers))(*room.buffers)
        groups = (_Number * self.layers.segments)(*self._group(room))
        network = _Network(
            len(layers), len(buffers), len(groups), max(groups), self.layers.channels[self.scores],
            room.place[self.scores], ctypes.addressof(layers), ctypes.addressof(buffers), ctypes.addressof(groups),
        )  # fmt: skip
        return Plan(network, layers, buffers, groups)

    def _group(self, room: Room) -> Iterator[int]:
        """Images at a time in each segment: one, or more where filters are larger than maps and worth reading once."""
        for segment in range(self.layers.segments):
            mine = [packed for packed in self.packed if packed.step.segment == segment]
            maps = sum(room.sizes[packed.step.y] for packed in mine)
            yield min(max(sum(packed.weight for packed in mine) // max(maps, 1), 1), _GROUP)


def choose_kind(step: Step) -> int:
    """How the library computes a convolution."""
    assert step.weight is not None
    out, into, side, _ = step.weight.shape
    if step.x == IMAGES:
        return FIRST
    if (side, step.stride, step.padding) != (3, 1, 1):
        return CONV
    return WINOGRAD4 if max(out, into) <= _WIDEST_4 else WINOGRAD2


def _to_matrices(weight: Tensor, kind: int, pad: Callable[[int], int]) -> Tensor:
    """Filters (out, in, side, side) as matrices (number, terms, out)."""
    if kind == FIRST:
        return _pad(weight.flatten(1).T[None], 2, pad)
    weight = _pad(_pad(weight, 0, pad), 1, pad)
    if kind == CONV:
        return weight.permute(2, 3, 1, 0).flatten(0, 2)[None]
    g = torch.tensor(_G[2 if kind == WINOGRAD2 else 4], dtype=torch.float64)
    return (weight.flatten(2).double() @ torch.kron(g, g).T).permute(2, 1, 0)


def _pad(numbers: Tensor, dim: int, pad: Callable[[int], int]) -> Tensor:
    """Zeros behind, to whole vectors."""
    length = numbers.shape[dim]
    more = numbers.new_zeros([*numbers.shape[:dim], pad(length) - length, *numbers.shape[dim + 1 :]])
    return torch.cat([numbers, more], dim).contiguous()


def _find_sizes(steps: list[Step], height: int, width: int) -> list[tuple[int, int]]:
    """Height and width of each map."""
    sizes = {IMAGES: (height, width)}
    for step in steps:
        h, w = sizes[step.x]
        sizes[step.y] = step.size(h), step.size(w)
        if step.also:
            sizes[step.also.y] = sizes[step.y]
    return [sizes[i] for i in range(len(sizes))]


class Room:
    """Buffers for maps: `place` has the buffer of each map, or -1 where nobody reads it.

    A buffer belongs to one segment, which needs it for a group of images only. Maps that a later segment reads have
    buffers of their own. A sum is written over its summand.
    """

    def __init__(self, steps: list[Step], scores: int, sizes: list[int]) -> None:
        self.sizes = sizes
        self.buffers: list[_Buffer] = []
        self.place = [-1] * len(sizes)
        last, readers = self._find_readers(steps, scores)
        free: list[int] = []
        segment = -1
        for i, step in enumerate(steps):
            if step.segment != segment:
                segment, free = step.segment, []
            dying = {m for m in (step.x, step.add) if m not in (None, IMAGES) and last[m] == i}
            made = [step.y, *([step.also.y] if step.also else ())]
            over = step.add if step.add in dying and step.add != step.x else None
            for m in (m for m in made if m in last):
                if readers[m] != segment:
                    self.place[m] = self._new(m, -1)
                elif over is not None and self.buffers[self.place[over]].segment == segment:
                    self.place[m], over = self.place[over], None
                    dying.discard(step.add)
                else:
                    self.place[m] = self._take(m, segment, free)
            free += [self.place[m] for m in dying if self.buffers[self.place[m]].segment == segment]

    def _find_readers(self, steps: list[Step], scores: int) -> tuple[dict[int, int], dict[int, int]]:
        """The last reader of each map that has any, and its segment."""
        last = {m: i for i, step in enumerate(steps) for m in (step.x, step.add) if m is not None}
        last[scores] = len(steps)
        return last, {m: steps[i].segment if i < len(steps) else -1 for m, i in last.items()}

    def _take(self, m: int, segment: int, free: list[int]) -> int:
        """The smallest free buffer that is large enough, else the largest one made larger, else a new one."""
        if not free:
            return self._new(m, segment)
        size = self.sizes[m]
        fits = [b for b in free if self.buffers[b].size >= size]
        found = min(fits, key=lambda b: self.buffers[b].size) if fits else max(free, key=lambda b: self.buffers[b].size)
        free.remove(found)
        self.buffers[found].size = max(self.buffers[found].size, size)
        return found

    def _new(self, m: int, segment: int) -> int:
        self.buffers.append(_Buffer(self.sizes[m], segment))
        return len(self.buffers) - 1


def _write_layer(
    packed: Packed, room: Room, sizes: list[tuple[int, int]], channels: list[int], layers: Layers
) -> _Layer:
    step, place = packed.step, room.place
    into = layers.channels[step.x] if packed.kind == FIRST else channels[step.x]
    also = step.also
    return _Layer(
        packed.kind, step.segment,
        *(place[step.x], place[step.y], -1 if step.add is None else place[step.add], place[also.y] if also else -1),
        *(into, *sizes[step.x]), *(channels[step.y], *sizes[step.y]),
        *(step.side, step.stride, step.padding, step.front, step.average, step.relu, bool(also and also.relu)),
        *(step.alpha, step.gain),
        *(None if t is None else t.data_ptr() for t in packed[2:]),
    )  # fmt: skip


# --- the library ------------------------------------------------------------------------------


class Functions:
    """The compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._run = library.run_network
        for function in (library.run_network, library.lanes, library.widest):
            function.restype = _Number
        self.lanes, self.widest = library.lanes(), library.widest()

    def pad(self, channels: int) -> int:
        """Channels in whole vectors."""
        return -(-channels // self.lanes) * self.lanes

    def pack(self, matrices: Tensor) -> Tensor:
        """Matrices (number, terms, columns) in panels: of `widest` vectors of columns, then of fewer."""
        columns = matrices.shape[2]
        parts, first = [], 0
        while first < columns:
            vectors = (columns - first) // self.lanes
            width = (self.widest if vectors >= self.widest else min(vectors, 2)) * self.lanes
            parts.append(matrices[:, :, first : first + width].flatten(1).float())
            first += width
        return torch.cat(parts, 1)

    def run(self, network: _Network, images: _Images, scores: Tensor) -> None:
        threads = _Number(count_threads())
        pointer = _Pointer(scores.data_ptr())
        if self._run(ctypes.byref(network), ctypes.byref(images), pointer, threads):
            raise MemoryError("memory ran out in testing a network")


class Loaded(NamedTuple):
    """The library, or why there is none."""

    library: Functions | None
    how: str


@lru_cache(1)
def load() -> Loaded:
    """The library of this process, compiled on first use. A failure is reported once."""
    source = Path(__file__).with_name("network.cpp")
    library = Library(source, "inference code", WAYS, _open, salt=torch.__version__)
    return Loaded(*load_or_say(library, "PyTorch computes frozen networks layer by layer"))


def _open(path: Path) -> Functions:
    return open_checked(path, "inference code", Functions, _computes_correctly)


def _computes_correctly(library: Functions) -> bool:
    """A small network with a layer of each kind against PyTorch's."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw) / math.sqrt(math.prod(shape[1:]))

    images, first, bias, large = random(3, 3, 22, 18), random(24, 3, 3, 3), random(24), random(24, 24, 3, 3)
    small, strided, pointwise = random(520, 24, 3, 3), random(40, 24, 3, 3), random(520, 40, 1, 1)
    scale, shift = random(24), random(24)
    layers = Layers(3)
    x = layers.pool(layers.conv(IMAGES, first, bias, 1, 1), 3, 2, 1)
    layers.keep(x)
    act = layers.scale_shift(x, scale, shift, True)
    x = layers.relu(layers.sum(x, layers.conv(act, large, None, 1, 1), 0.5, 2.0))
    h = layers.resize(x, (8, 8), 2, True)
    layers.begin_segment()
    r = layers.mean(layers.conv(layers.conv(x, strided, None, 2, 1), pointwise, None))
    r = layers.sum(layers.mean(layers.conv(x, small, None, 1, 1)), r)
    found = Network(library, layers, layers.sum(layers.mean(layers.conv(h, pointwise, None)), r))(images)

    conv = functional.conv2d
    y = functional.max_pool2d(conv(images, first, bias, padding=1), 3, 2, 1)
    activated = torch.relu(y * scale.view(-1, 1, 1) + shift.view(-1, 1, 1))
    y = torch.relu(0.5 * y + 2 * conv(activated, large, padding=1))
    halved = functional.pad(functional.avg_pool2d(y, 2, ceil_mode=True, count_include_pad=False), (0, 0, 0, 0, 8, 8))
    maps = (conv(conv(y, strided, stride=2, padding=1), pointwise), conv(y, small, padding=1), conv(halved, pointwise))
    wanted = torch.stack([m.mean((2, 3)) for m in maps]).sum(0)
    return bool((found - wanted).abs().max() <= 1e-5 * wanted.abs().max())
