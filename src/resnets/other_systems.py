"""The other systems of the papers' tables: one row of data for each, no torch.

A `System` is a chain of layers, who published it, the recipe that its authors state, what the papers report for it,
and what is uncertain about it. `resnets info NAME` prints all of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resnets.chain import Chain

Rows = tuple[str, ...]


@dataclass(frozen=True)
class System:
    """A network that the papers compare themselves with."""

    chain: Chain
    source: str  # who published it
    recipe: str  # as its authors state it
    uncertain: tuple[str, ...] = ()  # what is not published, or published in two ways, and our choice


# --- CIFAR ------------------------------------------------------------------------------------


def _nin(pool2: str = "pool:max:3:s2:ceil", last: str = " relu", drop: str = "drop:0.5", head: str = "") -> Rows:
    """Network in network; `head` stands behind the first convolution of each block, before its ReLU."""
    return (
        f"conv1: conv:192:5{head} relu",
        "cccp1: conv:160:1 relu",
        f"cccp2: conv:96:1 relu pool:max:3:s2:ceil {drop}",
        f"conv2: conv:192:5{head} relu",
        "cccp3: conv:192:1 relu",
        f"cccp4: conv:192:1 relu {pool2} {drop}",
        f"conv3: conv:192:3{head} relu",
        "cccp5: conv:192:1 relu",
        f"cccp6: conv:K:1{last}",
        "average: pool:avg:all",
    )


_NIN_BN = (  # as micronet trains it
    "conv1: conv:192:5 bn relu",
    "cccp1: conv:160:1 bn relu",
    "cccp2: conv:96:1 bn relu pool:max:3:s2:p1",
    "conv2: conv:192:5 bn relu",
    "cccp3: conv:192:1 bn relu",
    "cccp4: conv:192:1 bn relu pool:avg:3:s2:p1",
    "conv3: conv:192:3 bn relu",
    "cccp5: conv:192:1 bn relu",
    "cccp6: conv:K:1 bn relu",
    "average: pool:avg:all",
)
_MAXOUT = (
    "hidden1: drop:0.2 conv:192:8:p4 maxout:2 pool:max:4:s2:ceil",
    "hidden2: drop:0.5 conv:384:8:p3 maxout:2 pool:max:4:s2:ceil",
    "hidden3: drop:0.5 conv:384:5:p3 maxout:2 pool:max:2:s2:ceil",
    "hidden4: drop:0.5 linear:2500 maxout:5",
    "scores: drop:0.5 linear:K",
)
_FITNET = ((32, 32, 32, 48, 48), (80,) * 6, (128,) * 6)  # filters of FitNet-4's stages


def _fitnet4(drop: str = "") -> Rows:
    """Stages of maxout convolutions of two pieces; `drop` on the input, behind each pool and the hidden layer."""
    found, layer = [], 0
    for stage, filters in enumerate(_FITNET):
        for place, width in enumerate(filters):
            layer += 1
            before = f"{drop} " if drop and layer == 1 else ""
            after = (" pool:max:2:s2" if stage < 2 else " pool:max:all") if place == len(filters) - 1 else ""
            found.append(f"conv{layer}: {before}conv:{2 * width}:3 maxout:2{after}" + f" {drop}" * bool(drop and after))
    hidden = "hidden: linear:2500 maxout:5" + f" {drop}" * bool(drop)
    return (*found, hidden, "scores: linear:K")


def _fitresnet4() -> Rows:
    """FitNet-4 with the sum of x around each pair of convolutions that keeps the width."""
    drop, found = "drop:0.2", []

    def conv(width: int) -> str:
        return f"conv:{2 * width}:3 maxout:2"

    def pair(width: int) -> str:
        return f"sum:1({conv(width)} {conv(width)})"

    stages: tuple[tuple[str, ...], ...] = (
        (f"{drop} {conv(32)}", pair(32), conv(48), conv(48)),
        *((conv(width), pair(width), pair(width), conv(width)) for width in (80, 128)),
    )
    for number, parts in enumerate(stages, 1):
        pool = "pool:max:2:s2" if number < 3 else "pool:max:all"
        found += [f"stage{number}_{i}: {part}" for i, part in enumerate(parts[:-1], 1)]
        found.append(f"stage{number}_{len(parts)}: {parts[-1]} {pool} {drop}")
    return (*found, f"hidden: linear:2500 maxout:5 {drop}", "scores: linear:K")


def _highway(stages: Iterable[tuple[int, Iterable[int]]]) -> Rows:
    """Each stage is a width and the kernels of its layers; the first is a plain convolution, the others are gated."""
    found: list[str] = []
    for number, (width, kernels) in enumerate(stages, 1):
        first, *gated = kernels
        drop = "drop:0.2 " if number == 1 else "pool:max:2:s2 drop:0.2 "
        found.append(f"stage{number}: {drop}conv:{width}:{first} relu")
        found += [f"stage{number}_{i}: highway:{kernel}:-2" for i, kernel in enumerate(gated, 1)]
    return (*found, "reduce: conv:100:1 relu pool:avg:all drop:0.2", "scores: linear:K")


_ALLCNN = (
    "conv1: drop:0.2 conv:96:3 relu",
    "conv2: conv:96:3 relu",
    "conv3: conv:96:3:s2 relu drop:0.5",
    "conv4: conv:192:3 relu",
    "conv5: conv:192:3 relu",
    "conv6: conv:192:3:s2 relu drop:0.5",
    "conv7: conv:192:3:p0 relu",
    "conv8: conv:192:1 relu",
    "conv9: conv:K:1 relu",
    "average: pool:avg:all",
)
_ELU_STACKS = (  # of (layers, filters, kernel), and the rate of dropout behind the last layer
    (((1, 384, 3),), 0),
    (((1, 384, 1), (1, 384, 2), (2, 640, 2)), 0.1),
    (((1, 640, 1), (3, 768, 2)), 0.2),
    (((1, 768, 1), (2, 896, 2)), 0.3),
    (((1, 896, 3), (2, 1024, 2)), 0.4),
    (((1, 1024, 1), (1, 1152, 2)), 0.5),
    (((1, 1152, 1),), 0),
)


def _elu18() -> Rows:
    found = []
    for number, (layers, rate) in enumerate(_ELU_STACKS, 1):
        convs = [f"conv:{filters}:{kernel} elu" for count, filters, kernel in layers for _ in range(count)]
        drop = f" drop:{rate}" if rate else ""
        found.append(f"stack{number}: {' '.join(convs)}{drop} pool:max:2:s2:ceil")
    return (*found, "scores: conv:K:1 pool:avg:all")


# --- ImageNet ---------------------------------------------------------------------------------


def _vgg(convs: tuple[int, ...]) -> Rows:
    """Stages of 3x3 convolutions with 64 to 512 filters, each closed by a pool."""
    found = []
    for stage, (count, width) in enumerate(zip(convs, (64, 128, 256, 512, 512), strict=True), 1):
        for place in range(1, count + 1):
            pool = " pool:max:2:s2" if place == count else ""
            found.append(f"conv{stage}_{place}: conv:{width}:3 relu{pool}")
    full = "linear:4096 relu drop:0.5"
    return (*found, f"fc6: {full}", f"fc7: {full}", "fc8: linear:K")


def _prelunet(widths: tuple[int, int, int], layers: int) -> Rows:
    found = ["conv1: conv:96:7:s2 prelu pool:max:2:s2"]
    for stage, width in enumerate(widths, 2):
        for place in range(1, layers + 1):
            pool = " pool:max:2:s2" if place == layers and stage < 4 else ""
            found.append(f"conv{stage}_{place}: conv:{width}:3 prelu{pool}")
    full = "linear:4096 prelu drop:0.5"
    return (*found, f"fc1: pyramid:7,3,2,1 {full}", f"fc2: {full}", "fc3: linear:K")


# 1x1 | 3x3 after its 1x1 | 5x5 after its 1x1 | 1x1 after max pooling
_GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def _googlenet() -> Rows:
    pool, aux = " pool:max:3:s2:ceil", " aux:0.3(pool:avg:5:s3 conv:128:1 relu linear:1024 relu drop:0.7 linear:K)"
    lrn = " lrn:5:0.0001:0.75"
    found = [
        f"conv1: conv:64:7:s2 relu{pool}{lrn}",
        "conv2: conv:64:1 relu",
        f"conv3: conv:192:3 relu{lrn}{pool}",
    ]
    for name, (one, red3, three, red5, five, pooled) in _GOOGLENET.items():
        mix = (
            f"mix(conv:{one}:1 relu | conv:{red3}:1 relu conv:{three}:3 relu | conv:{red5}:1 relu conv:{five}:5 relu"
            f" | pool:max:3:p1 conv:{pooled}:1 relu)"
        )
        end = pool if name in ("3b", "4e") else aux if name in ("4a", "4d") else ""
        found.append(f"inception{name}: {mix}{end}")
    return (*found, "scores: pool:avg:all drop:0.4 linear:K")


def _bn(out: int | str, kernel: int | str, more: str = "") -> str:
    return f"conv:{out}:{kernel}{more}:nobias bn relu"


def _googlenet_bn() -> Rows:
    """torchvision's network of that name."""
    pool = " pool:max:3:s2:ceil"
    aux = f" aux:0.3(pool:avg:to4 {_bn(128, 1)} linear:1024 relu drop:0.7 linear:K)"
    found = [f"conv1: {_bn(64, 7, ':s2')}{pool}", f"conv2: {_bn(64, 1)}", f"conv3: {_bn(192, 3)}{pool}"]
    for name, (one, red3, three, red5, five, pooled) in _GOOGLENET.items():
        mix = (
            f"mix({_bn(one, 1)} | {_bn(red3, 1)} {_bn(three, 3)} | {_bn(red5, 1)} {_bn(five, 3)}"
            f" | pool:max:3:p1:ceil {_bn(pooled, 1)})"
        )
        end = {"3b": pool, "4e": " pool:max:2:s2:ceil", "4a": aux, "4d": aux}.get(name, "")
        found.append(f"inception{name}: {mix}{end}")
    return (*found, "scores: pool:avg:all drop:0.2 linear:K")


# 1x1 | 3x3 after its 1x1 | two 3x3 after their 1x1 | pooling and its 1x1; where the first is 0 the stride is 2
_BN_INCEPTION: dict[str, tuple[int, int, int, int, int, str, int]] = {
    "3a": (64, 64, 64, 64, 96, "avg", 32),
    "3b": (64, 64, 96, 64, 96, "avg", 64),
    "3c": (0, 128, 160, 64, 96, "max", 0),
    "4a": (224, 64, 96, 96, 128, "avg", 128),
    "4b": (192, 96, 128, 96, 128, "avg", 128),
    "4c": (160, 128, 160, 128, 160, "avg", 96),
    "4d": (96, 128, 192, 160, 192, "avg", 96),
    "4e": (0, 128, 192, 192, 256, "max", 0),
    "5a": (352, 192, 320, 160, 224, "avg", 128),
    "5b": (352, 192, 320, 192, 224, "max", 128),
}


def _bninception() -> Rows:
    pool = "pool:max:3:s2:ceil"
    found = [f"conv1: {_bn(64, 7, ':s2')} {pool}", f"conv2: {_bn(64, 1)}", f"conv3: {_bn(192, 3)} {pool}"]
    for name, (one, red3, three, red33, double, kind, pooled) in _BN_INCEPTION.items():
        stride = "" if one else ":s2"
        branches = [_bn(one, 1)] if one else []
        branches += [f"{_bn(red3, 1)} {_bn(three, 3, stride)}"]
        branches += [f"{_bn(red33, 1)} {_bn(double, 3)} {_bn(double, 3, stride)}"]
        branches += [f"pool:{kind}:3:p1 {_bn(pooled, 1)}" if one else pool]
        found.append(f"inception{name}: mix({' | '.join(branches)})")
    return (*found, "scores: pool:avg:all linear:K")


def _inception_stem() -> list[str]:
    return [
        f"Conv2d_1a_3x3: {_bn(32, 3, ':s2:p0')}",
        f"Conv2d_2a_3x3: {_bn(32, 3, ':p0')}",
        f"Conv2d_2b_3x3: {_bn(64, 3)} pool:max:3:s2",
        f"Conv2d_3b_1x1: {_bn(80, 1)}",
        f"Conv2d_4a_3x3: {_bn(192, 3, ':p0')} pool:max:3:s2",
    ]


def _mix(*branches: Iterable[str]) -> str:
    return f"mix({' | '.join(' '.join(branch) for branch in branches)})"


def _inception_v3() -> Rows:
    average = "pool:avg:3:p1"
    found = _inception_stem()
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        five, double = (_bn(48, 1), _bn(64, 5)), (_bn(64, 1), _bn(96, 3), _bn(96, 3))
        found.append(f"Mixed_{name}: {_mix((_bn(64, 1),), five, double, (average, _bn(pooled, 1)))}")
    double = (_bn(64, 1), _bn(96, 3), _bn(96, 3, ":s2:p0"))
    found.append(f"Mixed_6a: {_mix((_bn(384, 3, ':s2:p0'),), double, ('pool:max:3:s2',))}")
    aux = f" aux:0.4(pool:avg:5:s3 {_bn(128, 1)} {_bn(768, 5, ':p0')} pool:avg:all linear:K)"
    for name, c in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        seven = (_bn(c, 1), _bn(c, "1x7"), _bn(192, "7x1"))
        twice = (_bn(c, 1), _bn(c, "7x1"), _bn(c, "1x7"), _bn(c, "7x1"), _bn(192, "1x7"))
        mix = _mix((_bn(192, 1),), seven, twice, (average, _bn(192, 1)))
        found.append(f"Mixed_{name}: {mix}{aux if name == '6e' else ''}")
    down = (_bn(192, 1), _bn(192, "1x7"), _bn(192, "7x1"), _bn(192, 3, ":s2:p0"))
    found.append(f"Mixed_7a: {_mix((_bn(192, 1), _bn(320, 3, ':s2:p0')), down, ('pool:max:3:s2',))}")
    fork = _mix((_bn(384, "1x3"),), (_bn(384, "3x1"),))
    for name in ("7b", "7c"):
        three, double = (_bn(384, 1), fork), (_bn(448, 1), _bn(384, 3), fork)
        found.append(f"Mixed_{name}: {_mix((_bn(320, 1),), three, double, (average, _bn(192, 1)))}")
    return (*found, "scores: pool:avg:all drop:0.5 linear:K")


def _inception_resnet_v2() -> Rows:
    found = _inception_stem()
    double = (_bn(64, 1), _bn(96, 3), _bn(96, 3))
    average = ("pool:avg:3:p1:nopad", _bn(64, 1))
    found.append(f"mixed_5b: {_mix((_bn(96, 1),), (_bn(48, 1), _bn(64, 5)), double, average)}")
    block = _mix((_bn(32, 1),), (_bn(32, 1), _bn(32, 3)), (_bn(32, 1), _bn(48, 3), _bn(64, 3)))
    found += [f"block35_{i}: sum:0.17({block} conv:320:1) relu" for i in range(1, 11)]
    down, pool = ":s2:p0", ("pool:max:3:s2",)
    found.append(f"mixed_6a: {_mix((_bn(384, 3, down),), (_bn(256, 1), _bn(256, 3), _bn(384, 3, down)), pool)}")
    block = _mix((_bn(192, 1),), (_bn(128, 1), _bn(160, "1x7"), _bn(192, "7x1")))
    found += [f"block17_{i}: sum:0.1({block} conv:1088:1) relu" for i in range(1, 21)]
    three, twice = (_bn(256, 1), _bn(288, 3, down)), (_bn(256, 1), _bn(288, 3), _bn(320, 3, down))
    found.append(f"mixed_7a: {_mix((_bn(256, 1), _bn(384, 3, down)), three, twice, pool)}")
    block = _mix((_bn(192, 1),), (_bn(192, 1), _bn(224, "1x3"), _bn(256, "3x1")))
    found += [f"block8_{i}: sum:0.2({block} conv:2080:1) relu" for i in range(1, 10)]
    found += [f"block8_10: sum:1({block} conv:2080:1)", f"conv2d_7b: {_bn(1536, 1)}"]
    return (*found, "scores: pool:avg:all drop:0.2 linear:K")


# --- the table --------------------------------------------------------------------------------

_SMALL = {"num_classes": 10, "input_size": 32}
_LARGE = {"num_classes": 1000, "input_size": 224}
_INCEPTION = {"num_classes": 1000, "input_size": 299, "bn_eps": 1e-3}

_POOL2 = "the author's first code has max for the second pool, his later code average; here it is max"


def _system(
    name: str, rows: Rows, source: str, recipe: str, *uncertain: str, size: Mapping[str, int | float]
) -> System:
    return System(Chain(name, rows, **size), source, recipe, uncertain)  # type: ignore[arg-type]


_TABLE = (
    _system("nin", _nin(), "Lin and others 2014, Network in network", "nin-paper", _POOL2, size=_SMALL),
    _system(
        "nin_bn",
        _NIN_BN,
        "micronet's NIN with BN, whose weights can be loaded; no system of the tables",
        "nin-paper",
        size=_SMALL,
    ),
    _system(
        "dsn",
        _nin(last="", drop="drop:0.5:unscaled", head=" aux:1(linear:K)"),
        "Lee and others 2015, Deeply-supervised nets",
        "dsn-paper",
        "the loss of the authors' CIFAR-100 network is softmax instead of the squared hinge: --loss cross-entropy",
        size=_SMALL,
    ),
    _system(
        "maxout",
        _MAXOUT,
        "Goodfellow and others 2013, Maxout networks; FitNet's teacher",
        "maxout-paper",
        "the hidden layer has 5 pieces in the authors' code; FitNets' count of 9 million parameters fits 2",
        size=_SMALL,
    ),
    _system(
        "fitnet4",
        _fitnet4(),
        "Romero and others 2015, FitNets: FitNet-4, 19 layers",
        "fitnet-paper",
        "the hidden layer has 5 pieces in the paper's text and code; its count of 2.5 million parameters fits 2",
        size=_SMALL,
    ),
    _system(
        "fitnet4_lsuv",
        _fitnet4("drop:0.2"),
        "Mishkin and Matas 2016, All you need is a good init: FitNet-4 with dropout",
        "lsuv-paper",
        size=_SMALL,
    ),
    _system(
        "fitresnet4",
        _fitresnet4(),
        "Mishkin and Matas 2016, All you need is a good init: FitResNet-4",
        "lsuv-paper",
        "its layers are in no source that we have: the sums around pairs of FitNet-4's convolutions are our choice",
        size=_SMALL,
    ),
    _system(
        "highway19",
        _highway(((32, [3] * 5), (80, [3] * 6), (128, [3] * 6))),
        "Srivastava and others 2015, Training very deep networks: 19 layers",
        "highway-paper",
        "7.72 % on CIFAR-10 is of a variant that ends in a fully connected layer whose width is not published; this is "
        "the variant with a 1x1 convolution and average pooling (7.69 % in their paper)",
        size=_SMALL,
    ),
    _system(
        "highway32",
        _highway((width, [3, *[3, 1] * 4, 3]) for width in (24, 48, 96)),
        "Srivastava and others 2015, Training very deep networks: 32 layers",
        "highway-paper",
        "only its 32 layers, kernels of 3x3 and 1x1 in turn and 1.25 million parameters are published; the widths 24, "
        "48, 96, and which layers are 3x3, are our choice",
        size=_SMALL,
    ),
    _system(
        "allcnn",
        _ALLCNN,
        "Springenberg and others 2015, Striving for simplicity: All-CNN-C",
        "allcnn-paper",
        "some ports pad the seventh convolution or leave the last ReLU out; the paper's 6x6 average decides",
        size=_SMALL,
    ),
    _system(
        "elu18",
        _elu18(),
        "Clevert and others 2016, Exponential linear units: 18 layers",
        "elu-paper",
        "the padding of even kernels is not published: here the map keeps its size",
        "a pool follows each stack, and a map of one pixel stays one pixel",
        size=_SMALL,
    ),
    _system(
        "vgg16",
        _vgg((2, 2, 3, 3, 3)),
        "Simonyan and Zisserman 2015, Very deep convolutional networks: D",
        "vgg-paper",
        size=_LARGE,
    ),
    _system(
        "vgg19",
        _vgg((2, 2, 4, 4, 4)),
        "Simonyan and Zisserman 2015, Very deep convolutional networks: E",
        "vgg-paper",
        size=_LARGE,
    ),
    *(
        _system(
            f"prelunet_{letter}",
            _prelunet(widths, layers),
            f"He and others 2015, Delving deep into rectifiers: model {letter.upper()}",
            "prelunet-paper",
            "the table of layers is from memory; the published costs of models A, B and C agree within 0.6 %",
            size=_LARGE,
        )
        for letter, widths, layers in (("a", (256, 512, 512), 5), ("b", (256, 512, 512), 6), ("c", (384, 768, 896), 6))
    ),
    _system(
        "googlenet",
        _googlenet(),
        "Szegedy and others 2015, Going deeper with convolutions",
        "googlenet-paper",
        "torchvision's network of this name is another one: googlenet_bn",
        size=_LARGE,
    ),
    _system(
        "googlenet_bn",
        _googlenet_bn(),
        "torchvision's GoogLeNet: BN, 3x3 in place of 5x5; its weights can be loaded; no system of the tables",
        "googlenet-paper",
        size={**_LARGE, "bn_eps": 1e-3},
    ),
    _system(
        "bninception",
        _bninception(),
        "Ioffe and Szegedy 2015, Batch normalization",
        "bninception-paper",
        "another port has 128 in place of 96 filters behind the pools of 4c and 4d; two sources agree on 96",
        size=_LARGE,
    ),
    _system(
        "inception_v3",
        _inception_v3(),
        "Szegedy and others 2016, Rethinking the Inception architecture",
        "inception-paper",
        "3x3 averages count the padding in torchvision and timm, as here, and not in TensorFlow",
        "dropout is 0.5 in torchvision, as here, and 0.2 in TensorFlow",
        "the weight of the auxiliary loss is torchvision's 0.4; the paper does not say it",
        size=_INCEPTION,
    ),
    _system(
        "inception_resnet_v2",
        _inception_resnet_v2(),
        "Szegedy and others 2017, Inception-v4, Inception-ResNet",
        "inception-paper",
        "the paper's figures have another stem and 5, 10, 5 blocks; all public code and weights have 10, 20, 10, as "
        "here",
        size=_INCEPTION,
    ),
)
SYSTEMS: dict[str, System] = {system.chain.name: system for system in _TABLE}
OTHERS: dict[str, Chain] = {name: system.chain for name, system in SYSTEMS.items()}
