"""The papers' tables and figures as data: which network, which recipe, which value."""

from __future__ import annotations

import dataclasses

from resnets.papers.rows import TESTS, Cell, Experiment, Row, Value
from resnets.unit_spec import ORDERS

FAILS = Value(fails=True)
HELD_OUT = 5000  # of CIFAR's training images, as v1 does for its choices


def shortcut(kind: str) -> Row:
    """ResNet-110 with another h in every unit."""
    return Row("resnet110", (("shortcut", kind),))


def gate_bias(bias: int) -> Row:
    """A trial of v2's search: trained on a part of the training set, judged by the rest of it."""
    return Row("resnet110", (("shortcut", f"exclusive_gate:{bias}"),), validation=HELD_OUT)


def order(layers: int, name: str) -> Row:
    """ResNet-110 or 164 with BN and ReLU in another order."""
    if name == "original":
        return Row(f"resnet{layers}")
    if name == "full_preact":
        return Row(f"preresnet{layers}")
    return Row(f"resnet{layers}", (("order", name),))


def imagenet(network: str, *changes: tuple[str, str], recipe: str = "imagenet-paper") -> Row:
    return Row(network, changes, "imagenet", recipe)


def v1_imagenet(layers: int) -> Row:
    """The authors' bottleneck nets of 2015, which have their stride in the first 1x1."""
    return imagenet(f"resnet{layers}", ("stride_on", "1x1"))


# --- v2, CIFAR --------------------------------------------------------------------------------

_ORDER_ERRORS = {  # of ResNet-110 and ResNet-164
    "original": (6.61, 5.93),
    "bn_after_add": (8.17, 6.50),
    "relu_before_add": (7.84, 6.14),
    "relu_preact": (6.71, 5.91),
    "full_preact": (6.37, 5.46),
}
_DEPTHS = (110, 164)
V2: dict[Row, Value] = {  # every number of v2 on CIFAR, once
    **{
        order(layers, name): Value(error)
        for name, errors in _ORDER_ERRORS.items()
        for layers, error in zip(_DEPTHS, errors, strict=True)
    },
    Row("plain110"): FAILS,
    shortcut("scale:0.5:1"): FAILS,
    shortcut("scale:0.5:0.5"): Value(12.35),
    shortcut("exclusive_gate:0"): FAILS,
    shortcut("exclusive_gate:-6"): Value(8.70),
    shortcut("exclusive_gate:-7"): Value(9.81),
    shortcut("shortcut_gate:0"): Value(12.86),
    shortcut("shortcut_gate:-6"): Value(6.91),
    shortcut("conv1x1"): Value(12.22),
    shortcut("dropout:0.5"): FAILS,
    Row("resnet110_1layer"): Value(9.90),
    Row("preresnet110_1layer"): Value(8.91),
    Row("resnet1001"): Value(7.61),
    Row("preresnet1001"): Value(4.92),
    Row("resnet164", data="cifar100"): Value(25.16),
    Row("preresnet164", data="cifar100"): Value(24.33),
    Row("resnet1001", data="cifar100"): Value(27.82),
    Row("preresnet1001", data="cifar100"): Value(22.71),
}


def quote(label: str, row: Row, mean: float | None = None, std: float | None = None) -> Cell:
    """A cell with v2's number; only Table 4 has mean and deviation."""
    return Cell(label, row, dataclasses.replace(V2[row], mean=mean, std=std))


_TABLE1 = (
    quote("original", Row("resnet110")),
    quote("constant scaling 0 x + F: a plain net", Row("plain110")),
    quote("constant scaling 0.5 x + F", shortcut("scale:0.5:1")),
    quote("constant scaling 0.5 x + 0.5 F", shortcut("scale:0.5:0.5")),
    quote("exclusive gating, b_g = 0 (the paper: 0 to -5)", shortcut("exclusive_gate:0")),
    quote("exclusive gating, b_g = -6", shortcut("exclusive_gate:-6")),
    quote("exclusive gating, b_g = -7", shortcut("exclusive_gate:-7")),
    quote("shortcut-only gating, b_g = 0", shortcut("shortcut_gate:0")),
    quote("shortcut-only gating, b_g = -6", shortcut("shortcut_gate:-6")),
    quote("1x1 conv shortcut", shortcut("conv1x1")),
    quote("dropout shortcut, 0.5", shortcut("dropout:0.5")),
)
_FIGURE3 = (
    quote("original", Row("resnet110")),
    quote("(a) 0.5 x + 0.5 F", shortcut("scale:0.5:0.5")),
    quote("(b) exclusive gating, b_g = -6", shortcut("exclusive_gate:-6")),
    quote("(c) shortcut-only gating, b_g = 0", shortcut("shortcut_gate:0")),
    quote("(d) 1x1 conv shortcut", shortcut("conv1x1")),
)
_GATE_BIAS = tuple(Cell(f"exclusive gating, b_g = {bias}", gate_bias(bias)) for bias in range(0, -11, -1))
_TABLE2 = tuple(
    quote(f"ResNet-{layers} {ORDERS[name].figure} {name}", order(layers, name))
    for layers in _DEPTHS
    for name in _ORDER_ERRORS
)
_TABLE3 = tuple(
    quote(f"{network}, {data}, {unit} unit", Row(prefix + name, data=data))
    for network, name, data in (
        ("ResNet-110 (1-layer)", "resnet110_1layer", "cifar10"),
        ("ResNet-110", "resnet110", "cifar10"),
        ("ResNet-164", "resnet164", "cifar10"),
        ("ResNet-1001", "resnet1001", "cifar10"),
        ("ResNet-164", "resnet164", "cifar100"),
        ("ResNet-1001", "resnet1001", "cifar100"),
    )
    for prefix, unit in (("", "baseline"), ("pre", "pre-activation"))
)
_RESNET1202 = Value(7.93)  # of v1, which v2 quotes


def fitnet(data: str) -> Row:
    """FitNet-4 in its two stages: towards a hidden row of the teacher, then with the teacher's scores."""
    teacher = Row("maxout", data=data, recipe="maxout-paper")
    hints = Row("fitnet4", data=data, recipe="fitnet-hints", teacher=teacher)
    return Row("fitnet4", data=data, recipe="fitnet-paper", teacher=teacher, begins=hints)


def other(network: str, recipe: str, data: str = "cifar10") -> Row:
    return Row(network, data=data, recipe=recipe)


_OTHERS = (  # moderate augmentation, as v2 quotes them; the last two are two systems
    ("NIN", other("nin", "nin-paper"), 8.81),
    ("NIN", other("nin", "nin-cifar100", "cifar100"), 35.68),
    ("DSN", other("dsn", "dsn-paper"), 8.22),
    ("DSN", other("dsn", "dsn-softmax", "cifar100"), 34.57),
    ("FitNet", fitnet("cifar10"), 8.39),
    ("FitNet", fitnet("cifar100"), 35.04),
    ("Highway", other("highway19", "highway-paper"), 7.72),
    ("Highway", other("highway19", "highway-paper", "cifar100"), 32.39),
    ("All-CNN", other("allcnn", "allcnn-paper"), 7.25),
    ("All-CNN", other("allcnn", "allcnn-paper", "cifar100"), 33.71),
    ("ELU", other("elu18", "elu-paper"), 6.55),
    ("ELU", other("elu18", "elu-paper", "cifar100"), 24.28),
    ("FitResNet, LSUV", other("fitresnet4", "lsuv-paper"), 5.84),
    ("FitNet, LSUV", other("fitnet4_lsuv", "lsuv-rmsprop", "cifar100"), 27.66),
)
_TABLE4 = (
    *(Cell(f"{name}, {row.data}", row, Value(error)) for name, row, error in _OTHERS),
    quote("ResNet-110, cifar10", Row("resnet110")),
    Cell("ResNet-1202, cifar10", Row("resnet1202"), _RESNET1202),
    quote("ResNet-164, cifar100", Row("resnet164", data="cifar100")),
    quote("ResNet-1001, cifar100", Row("resnet1001", data="cifar100")),
    quote("ResNet-164 pre-activation, cifar10", Row("preresnet164")),
    quote("ResNet-164 pre-activation, cifar100", Row("preresnet164", data="cifar100")),
    quote("ResNet-1001 pre-activation, cifar10", Row("preresnet1001"), mean=4.89, std=0.14),
    Cell(
        "ResNet-1001 pre-activation, batch 64, cifar10",
        Row("preresnet1001", recipe="cifar-paper-b64"),
        Value(4.62, mean=4.69, std=0.20),
    ),
    quote("ResNet-1001 pre-activation, cifar100", Row("preresnet1001", data="cifar100"), mean=22.68, std=0.22),
)
_FIGURE1 = (
    quote("ResNet-1001, original unit", Row("resnet1001")),
    quote("ResNet-1001, proposed unit", Row("preresnet1001")),
)
_FIGURE6 = (
    quote("ResNet-110, original", Row("resnet110")),
    quote("ResNet-110, BN after addition", order(110, "bn_after_add")),
    quote("ResNet-164, original", Row("resnet164")),
    quote("ResNet-164, pre-activation", Row("preresnet164")),
)

# --- v2, ImageNet -----------------------------------------------------------------------------

_ASPECT = imagenet("preresnet200", recipe="imagenet-aspect")  # scale and aspect-ratio augmentation
_TABLE5 = (
    Cell("ResNet-152, original unit", v1_imagenet(152), Value(23.0, 6.7), "224 crop"),
    Cell("ResNet-152, original unit", v1_imagenet(152), Value(21.3, 5.5), "320 crop"),
    Cell("ResNet-152, pre-activation unit", imagenet("preresnet152"), Value(21.1, 5.5), "320 crop"),
    Cell("ResNet-200, original unit", imagenet("resnet200"), Value(21.8, 6.0), "320 crop"),
    Cell("ResNet-200, pre-activation unit", imagenet("preresnet200"), Value(20.7, 5.3), "320 crop"),
    Cell("ResNet-200, pre-activation unit, scale and aspect ratio", _ASPECT, Value(20.1, 4.8), "320 crop"),
    Cell("Inception v3", imagenet("inception_v3", recipe="inception-paper"), Value(21.2, 5.6), "299 crop"),
)
_INCEPTION_RESNET = (
    Cell(
        "Inception-ResNet-v2",
        imagenet("inception_resnet_v2", recipe="inception-paper"),
        Value(19.9, 4.9),
        "299 crop",
    ),
)
_BN_AFTER_IMAGENET = (
    Cell("ResNet-101, original", v1_imagenet(101), Value(23.6, 7.1), "224 crop"),
    Cell(
        "ResNet-101, BN after addition",
        imagenet("resnet101", ("stride_on", "1x1"), ("order", "bn_after_add")),
        Value(24.6, 7.5),
        "224 crop",
    ),
)

# --- v1 ---------------------------------------------------------------------------------------

_OPTION_A = ("resize", "pad")
_PLAIN_IMAGENET = (
    Cell("plain, 18 layers", imagenet("plain18"), Value(27.94), "10 crops"),
    Cell("ResNet-18, option A", imagenet("resnet18", _OPTION_A), Value(27.88), "10 crops"),
    Cell("plain, 34 layers", imagenet("plain34"), Value(28.54, 10.02), "10 crops"),
    Cell("ResNet-34, option A", imagenet("resnet34", _OPTION_A), Value(25.03, 7.76), "10 crops"),
)
_CIFAR_DEPTHS = {20: 8.75, 32: 7.51, 44: 7.17, 56: 6.97}
_PLAIN_CIFAR = (
    *(Cell(f"plain, {layers} layers", Row(f"plain{layers}")) for layers in _CIFAR_DEPTHS),
    Cell("plain, 110 layers", Row("plain110"), FAILS),
    *(
        Cell(f"ResNet, {layers} layers", Row(f"resnet{layers}"), Value(error))
        for layers, error in _CIFAR_DEPTHS.items()
    ),
    Cell("ResNet, 110 layers", Row("resnet110"), Value(6.43, mean=6.61, std=0.16)),
    Cell("ResNet, 1202 layers", Row("resnet1202"), _RESNET1202),
)
_OTHER_CIFAR = (
    Cell("Maxout", other("maxout", "maxout-paper"), Value(9.38)),
    Cell("NIN", other("nin", "nin-paper"), Value(8.81)),
    Cell("DSN", other("dsn", "dsn-paper"), Value(8.22)),
    Cell("FitNet, 19 layers", fitnet("cifar10"), Value(8.39)),
    Cell("Highway, 19 layers", other("highway19", "highway-paper"), Value(7.54, mean=7.72, std=0.16)),
    Cell("Highway, 32 layers", other("highway32", "highway-paper"), Value(8.80)),
    *_PLAIN_CIFAR[len(_CIFAR_DEPTHS) + 1 :],
)
_FIGURE7 = (
    *(Cell(f"plain, {layers} layers", Row(f"plain{layers}")) for layers in (20, 56)),
    *(Cell(f"ResNet, {layers} layers", Row(f"resnet{layers}")) for layers in (20, 56, 110)),
)
_OPTIONS = (
    Cell("plain, 34 layers", imagenet("plain34"), Value(28.54, 10.02), "10 crops"),
    Cell("ResNet-34, A: zero padding", imagenet("resnet34", _OPTION_A), Value(25.03, 7.76), "10 crops"),
    Cell("ResNet-34, B: projection where it grows", imagenet("resnet34"), Value(24.52, 7.46), "10 crops"),
    Cell(
        "ResNet-34, C: projection everywhere", imagenet("resnet34", ("shortcut", "conv1x1")), Value(24.19, 7.40),
        "10 crops",
    ),
)  # fmt: skip
_VGG16, _VGG19 = (imagenet(name, recipe="vgg-paper") for name in ("vgg16", "vgg19"))
_GOOGLENET = imagenet("googlenet", recipe="googlenet-paper")
_PRELUNET = imagenet("prelunet_c", recipe="prelunet-paper")
_BNINCEPTION = imagenet("bninception", recipe="bninception-paper")
_DEPTH = (
    Cell("VGG-16", _VGG16, Value(28.07, 9.33), "10 crops"),
    Cell("GoogLeNet", _GOOGLENET, Value(None, 9.15), "10 crops"),
    Cell("PReLU-net", _PRELUNET, Value(24.27, 7.38), "10 crops"),
    *_OPTIONS[1:],
    Cell("ResNet-50", v1_imagenet(50), Value(22.85, 6.71), "10 crops"),
    Cell("ResNet-101", v1_imagenet(101), Value(21.75, 6.05), "10 crops"),
    Cell("ResNet-152", v1_imagenet(152), Value(21.43, 5.71), "10 crops"),
)
_SINGLE = (  # the whole picture at five sizes; how the authors of the others tested is theirs
    Cell("VGG, ILSVRC 2014 (theirs: on the test set)", _VGG16, Value(None, 8.43), "5 scales"),
    Cell("GoogLeNet, ILSVRC 2014 (theirs: 144 crops)", _GOOGLENET, Value(None, 7.89), "5 scales"),
    Cell("VGG, v5", _VGG19, Value(24.4, 7.1), "5 scales"),
    Cell("PReLU-net", _PRELUNET, Value(21.59, 5.71), "5 scales"),
    Cell("BN-inception (theirs: 144 crops)", _BNINCEPTION, Value(21.99, 5.81), "10 crops"),
    Cell("ResNet-34 B", imagenet("resnet34"), Value(21.84, 5.71), "5 scales"),
    Cell("ResNet-34 C", imagenet("resnet34", ("shortcut", "conv1x1")), Value(21.53, 5.60), "5 scales"),
    Cell("ResNet-50", v1_imagenet(50), Value(20.74, 5.25), "5 scales"),
    Cell("ResNet-101", v1_imagenet(101), Value(19.87, 4.60), "5 scales"),
    Cell("ResNet-152", v1_imagenet(152), Value(19.38, 4.49), "5 scales"),
)
_ENSEMBLES = tuple(  # top-5 on the test set; `resnets eval RUN RUN ...` tests ensembles
    Cell(label, None, Value(None, top5))
    for label, top5 in (
        ("VGG, ILSVRC 2014", 7.32),
        ("GoogLeNet, ILSVRC 2014", 6.66),
        ("VGG, v5", 6.8),
        ("PReLU-net", 4.94),
        ("BN-inception", 4.82),
        ("ResNet, ILSVRC 2015", 3.57),
    )
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", "v2 Table 1", "shortcuts of ResNet-110 on CIFAR-10", _TABLE1),
        Experiment("table2", "v2 Table 2", "orders of BN and ReLU in ResNet-110 and 164 on CIFAR-10", _TABLE2),
        Experiment("table3", "v2 Table 3", "baseline against pre-activation unit on CIFAR", _TABLE3),
        Experiment("table4", "v2 Table 4", "against other networks on CIFAR", _TABLE4),
        Experiment("table5", "v2 Table 5", "against other networks on ImageNet", _TABLE5),
        Experiment("inception-resnet", "v2 Section 5", "Inception-ResNet-v2, in the text", _INCEPTION_RESNET),
        Experiment("figure1", "v2 Figure 1", "training curves of ResNet-1001 on CIFAR-10", _FIGURE1),
        Experiment("figure3", "v2 Figure 3", "training curves of shortcuts on CIFAR-10", _FIGURE3),
        Experiment("figure6", "v2 Figure 6", "BN after addition; pre-activation at 164 layers", _FIGURE6),
        Experiment("gate-bias", "v2 Section 3.1", "the search of b_g from 0 to -10 on held-out images", _GATE_BIAS),
        Experiment("bn-after-imagenet", "v2 Section 4.1", "BN after addition in ResNet-101", _BN_AFTER_IMAGENET),
        Experiment("plain-cifar", "v1 Table 6, Figure 6", "plain against residual nets by depth", _PLAIN_CIFAR),
        Experiment("other-cifar", "v1 Table 6", "other systems against residual nets on CIFAR-10", _OTHER_CIFAR),
        Experiment("figure7", "v1 Figure 7", "how strongly the layers respond", _FIGURE7),
        Experiment("plain-imagenet", "v1 Table 2", "plain against residual nets of 18 and 34 layers", _PLAIN_IMAGENET),
        Experiment("options", "v1 Table 3", "options A, B and C of ResNet-34", _OPTIONS),
        Experiment("depth", "v1 Table 3", "34 to 152 layers on ImageNet by ten crops", _DEPTH),
        Experiment("single-model", "v1 Table 4", "34 to 152 layers on ImageNet by whole pictures", _SINGLE),
        Experiment("ensembles", "v1 Table 5", "ensembles on ImageNet's test set, top-5, quoted", _ENSEMBLES),
    )
}


def list_protocols(row: Row) -> tuple[str, ...]:
    """The ways in which any cell wants a row to be tested: it is trained once for all of them. None on CIFAR."""
    wanted = {cell.test for experiment in EXPERIMENTS.values() for cell in experiment.cells if cell.row == row}
    return tuple(test for test in TESTS if test in wanted)
