"""A chain as a torch module: one factory for each word of `resnets.chain.WORDS`."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets import chain as words
from resnets.chain import Branch, Chain, Shape, Sides, Word
from resnets.nn.base import Network, check_input

Pads = tuple[int, int, int, int]  # above, below, left, right

# --- layers that torch does not have ----------------------------------------------------------


class UnevenConv(nn.Conv2d):
    """A convolution by an even kernel that keeps the size of the map: one pixel more is padded after than before."""

    def __init__(self, into: int, out: int, kernel: Sides, *, stride: Sides, pads: Pads, bias: bool) -> None:
        super().__init__(into, out, kernel, stride, bias=bias)
        self.pads = pads

    def forward(self, x: Tensor) -> Tensor:
        above, below, left, right = self.pads
        return super().forward(functional.pad(x, (left, right, above, below)))


class MapLinear(nn.Linear):
    """A fully connected layer that reads a whole map of `sides`; on a larger map it is a convolution of that size."""

    def __init__(self, channels: int, sides: Sides, out: int) -> None:
        super().__init__(channels * math.prod(sides), out)
        self.sides = sides

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[2:]) == self.sides:
            return super().forward(x.flatten(1))[:, :, None, None]
        return functional.conv2d(x, self.weight.view(self.out_features, -1, *self.sides), self.bias)


class Maxout(nn.Module):
    """The largest of `pieces` neighbouring channels (Goodfellow 2013)."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 1, (x.shape[1] // self.pieces, self.pieces)).amax(2)

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}"


class MaskDropout(nn.Module):
    """Dropout as Caffe once had it: a 0/1 mask in training, its expectation in testing."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        keep = 1 - self.p
        return x * torch.bernoulli(torch.full_like(x, keep)) if self.training else x * keep

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Gate(nn.Conv2d):
    """The convolution of a highway layer's gate; its bias starts below zero, so that x is carried at first."""

    def __init__(self, channels: int, kernel: Sides, initial_bias: float) -> None:
        super().__init__(channels, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2))
        self.initial_bias = initial_bias


class Highway(nn.Module):
    """t h + (1 - t) x, with h = relu(H x) and t = sigmoid(T x) (Srivastava 2015)."""

    def __init__(self, channels: int, kernel: Sides, bias: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2))
        self.gate = Gate(channels, kernel, bias)

    def forward(self, x: Tensor) -> Tensor:
        h, t = self.conv(x).relu(), self.gate(x).sigmoid()
        return t * h + (1 - t) * x


class Pyramid(nn.Module):
    """Spatial pyramid pooling: the maxima of grids of several sides, as one vector (He 2014)."""

    def __init__(self, grids: tuple[int, ...]) -> None:
        super().__init__()
        self.grids = grids

    def forward(self, x: Tensor) -> Tensor:
        bins = [functional.adaptive_max_pool2d(x, side).flatten(1) for side in self.grids]
        return torch.cat(bins, 1)[:, :, None, None]

    def extra_repr(self) -> str:
        return f"grids={self.grids}"


class Mix(nn.ModuleList):
    """Branches that read the same map; their channels stand one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], 1)


class Sum(nn.Module):
    """x + scale F(x)."""

    def __init__(self, scale: float, branch: nn.Module) -> None:
        super().__init__()
        self.scale, self.branch = scale, branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.branch(x)

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class Aux(nn.Module):
    """Class scores of a map on the way, for a loss in training. The network calls `head`; the map goes on unchanged."""

    def __init__(self, weight: float, head: nn.Module) -> None:
        super().__init__()
        self.weight, self.head = weight, head

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"weight={self.weight}"


LAYERS = (UnevenConv, MapLinear, Maxout, MaskDropout, Gate, Highway, Pyramid, Mix, Sum, Aux)  # of this file

# --- from words to layers ---------------------------------------------------------------------


def _conv(word: words.Conv, into: Shape, chain: Chain) -> nn.Module:
    assert isinstance(word.out, int)
    above, below, left, right = word.pads
    if (above, left) != (below, right):
        return UnevenConv(into[0], word.out, word.kernel, stride=word.stride, pads=word.pads, bias=word.bias)
    return nn.Conv2d(into[0], word.out, word.kernel, word.stride, (above, left), bias=word.bias)


def _linear(word: words.Linear, into: Shape, chain: Chain) -> nn.Module:
    assert isinstance(word.out, int)
    return MapLinear(into[0], into[1:], word.out)


def _pool(word: words.Pool, into: Shape, chain: Chain) -> nn.Module:
    if word.kernel is None:
        return (nn.AdaptiveMaxPool2d if word.by == "max" else nn.AdaptiveAvgPool2d)(word.side or 1)
    if word.by == "max":
        return nn.MaxPool2d(word.kernel, word.stride, word.padding, ceil_mode=word.ceil)
    return nn.AvgPool2d(word.kernel, word.stride, word.padding, word.ceil, not word.nopad)


def _drop(word: words.Drop, into: Shape, chain: Chain) -> nn.Module:
    return MaskDropout(word.p) if word.unscaled else nn.Dropout(word.p)


def _bn(word: Word, into: Shape, chain: Chain) -> nn.Module:
    return nn.BatchNorm2d(into[0], chain.bn_eps, chain.bn_momentum)


def _mix(word: Word, into: Shape, chain: Chain) -> nn.Module:
    return Mix(build_words(branch, into, chain) for branch in word.branches)


Factory = Callable[..., nn.Module]  # of a word, the shape of its map, and the chain
FACTORIES: dict[str, Factory] = {
    "conv": _conv,
    "linear": _linear,
    "pool": _pool,
    "pyramid": lambda word, into, chain: Pyramid(word.grids),
    "bn": _bn,
    "relu": lambda word, into, chain: nn.ReLU(),
    "elu": lambda word, into, chain: nn.ELU(),
    "prelu": lambda word, into, chain: nn.PReLU(into[0]),
    "maxout": lambda word, into, chain: Maxout(word.pieces),
    "lrn": lambda word, into, chain: nn.LocalResponseNorm(word.size, word.alpha, word.beta, 1.0),
    "drop": _drop,
    "highway": lambda word, into, chain: Highway(into[0], word.kernel, word.bias),
    "mix": _mix,
    "sum": lambda word, into, chain: Sum(word.scale, build_words(word.branches[0], into, chain)),
    "aux": lambda word, into, chain: Aux(word.weight, build_words(word.branches[0], into, chain)),
}


def build_words(branch: Branch, into: Shape, chain: Chain) -> nn.Sequential:
    """The layers of some words for maps of this shape, named `conv1`, `relu1`, `conv2` ..."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    seen: Counter[str] = Counter()
    for word in branch:
        seen[word.word] += 1
        layers[f"{word.word}{seen[word.word]}"] = FACTORIES[word.word](word, into, chain)
        into = word.shape(into)
    return nn.Sequential(layers)


class ChainNet(Network):
    """A network of rows, as its chain says: `rows.NAME.conv1`."""

    spec: Chain

    def __init__(self, spec: Chain) -> None:
        super().__init__(spec)
        rows: OrderedDict[str, nn.Module] = OrderedDict()
        shape: Shape = (spec.in_channels, spec.input_size, spec.input_size)
        for name, row in spec.parts:
            rows[name] = build_words(row, shape, spec)
            shape = words.shape_after(row, shape)
        self.rows = nn.Sequential(rows)

    def forward(self, x: Tensor, aux: bool = False) -> Tensor | tuple[Tensor, list[tuple[float, Tensor]]]:
        """Class scores; with `aux` also the weight and the scores of each auxiliary head."""
        x, heads = check_input(self.spec, x), []
        for layer in self.layers():
            if aux and isinstance(layer, Aux):
                heads.append((layer.weight, layer.head(x).mean((2, 3))))
            x = layer(x)
        scores = x.mean((2, 3))  # of a larger image: over all places
        return (scores, heads) if aux else scores

    def forward_features(self, x: Tensor) -> Tensor:
        """The last map, as the pooling or the first fully connected layer sees it."""
        x = check_input(self.spec, x)
        for layer in self._split()[0]:
            x = layer(x)
        return x

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The last map of each size, from the largest to the smallest, as `forward_features` has the last of all.

        >>> net = resnets.create("nin")
        >>> [tuple(map.shape[1:]) for map in net.forward_stages(torch.zeros(1, 3, 32, 32))]
        [(96, 32, 32), (192, 16, 16), (10, 8, 8)]
        """
        maps = [check_input(self.spec, x)]
        for layer in self._split()[0]:
            y = layer(maps[-1])
            maps = [*maps, y] if y.shape[2:] != maps[-1].shape[2:] else [*maps[:-1], y]
        return maps

    def forward_head(self, x: Tensor) -> Tensor:
        """Class scores from the last map."""
        for layer in self._split()[1]:
            x = layer(x)
        return x.mean((2, 3))

    def _split(self) -> tuple[list[nn.Module], list[nn.Module]]:
        layers = list(self.layers())
        ends = (MapLinear, Pyramid, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
        first = next(i for i, layer in enumerate([*layers, Pyramid(())]) if isinstance(layer, ends))
        return layers[:first], layers[first:]

    def layers(self) -> Iterator[nn.Module]:
        """The layers of all rows, in order; those of branches are inside of theirs."""
        for row in self.rows.children():
            yield from row.children()

    @property
    def classifier(self) -> nn.Conv2d | nn.Linear:
        """The last layer with weights."""
        found = [layer for layer in self.layers() if isinstance(layer, nn.Conv2d | nn.Linear)]
        return found[-1]

    @property
    def class_layers(self) -> tuple[str, ...]:
        """The names of the layers whose outputs are classes: of the network, and of its auxiliary heads."""
        return tuple(name for name, word in words.named_words(self.spec) if getattr(word, "classifies", False))

    @property
    def aux_heads(self) -> tuple[Aux, ...]:
        return tuple(layer for layer in self.layers() if isinstance(layer, Aux))


def initialize_chain(net: ChainNet, generator: torch.Generator | None = None) -> ChainNet:
    """He's normal by inputs for filters and weights, 0 for biases, what the words say for gates; 1 and 0 for BN.

    A layer whose outputs are classes is drawn within +-1/sqrt(inputs), as the classifier of a residual network.
    """
    classes = {net.get_submodule(name) for name in net.class_layers}
    with torch.no_grad():
        for module in net.modules():
            match module:
                case nn.Conv2d() | nn.Linear():
                    inputs = module.weight[0].numel()
                    if module in classes:
                        module.weight.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
                    else:
                        module.weight.normal_(0, math.sqrt(2 / inputs), generator=generator)
                    if module.bias is not None:
                        module.bias.fill_(module.initial_bias if isinstance(module, Gate) else 0.0)
                case nn.BatchNorm2d() | nn.PReLU():
                    module.reset_parameters()
    return net
