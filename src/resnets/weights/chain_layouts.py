"""How other libraries name the tensors of the other systems of the papers' tables.

A library's modules are listed in the order in which ours are built. A layout belongs to whole networks: one whose
pooling, padding or normalization differs computes another function of tensors with the same names and shapes, so only
the rows of the table are taken.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from resnets import chain as words
from resnets.chain import Chain, NetworkSpec
from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD
from resnets.other_systems import OTHERS
from resnets.weights.compare import format_creation
from resnets.weights.layout import Floats, Layout, Pairs

Names = Callable[[Chain], Iterator[str]]  # their modules with weights, in our order


@dataclass(frozen=True)
class ChainLayout(Layout):
    """A library's names for the modules of some other systems."""

    networks: Mapping[str, Names] = field(default_factory=dict)
    classifier: str = ""  # the name of its weight
    aux: str = ""  # begins the names of auxiliary heads
    kernels: Mapping[str, int] = field(default_factory=dict)  # our fully connected weights that they store as filters

    def find(self, spec: Chain) -> str:
        """The network of this layout that a chain is, or nothing; classes and auxiliary heads may differ."""
        for name in self.networks:
            known = dataclasses.replace(OTHERS[name], num_classes=spec.num_classes, aux=spec.aux)
            if [row for _, row in known.parts] == [row for _, row in spec.parts] and known.bn_eps == spec.bn_eps:
                return name
        return ""

    def list_modules(self, spec: Chain) -> Pairs:
        """Our module, their module."""
        kinds = words.Conv | words.Bn | words.Linear
        ours = [name for name, word in words.named_words(spec) if isinstance(word, kinds)]
        return zip(ours, self.networks[self.find(spec)](spec), strict=True)

    def shape(self, name: str, ours: torch.Size) -> torch.Size:
        side = self.kernels.get(name)
        return torch.Size([ours[0], ours[1] // side**2, side, side]) if side else ours

    def require(self, spec: NetworkSpec, what: str) -> None:
        if not isinstance(spec, Chain) or not self.find(spec):
            right = " or ".join(format_creation(OTHERS[name]) for name in self.networks)
            raise UserError(
                f"{what} {self.title}, and {spec.name} is another network, even where names and shapes agree: build it "
                f"with {right}."
            )

    def infer(self, tensors: Mapping[str, Tensor], where: object) -> Chain:
        """The network of a file."""
        if self.classifier not in tensors:
            raise UserError(f"{where} has no {self.classifier}, so it is no whole network of {self.title}.")
        heads = bool(self.aux) and any(name.startswith(self.aux) for name in tensors)
        name = self._choose(tensors, where)
        found = OTHERS[name]
        aux = heads if self.aux else found.aux
        return dataclasses.replace(found, num_classes=len(tensors[self.classifier]), aux=aux)

    def _choose(self, tensors: Mapping[str, Tensor], where: object) -> str:
        """By the number of its convolutions."""
        count = sum(tensor.dim() == 4 and name not in _FULL for name, tensor in tensors.items())
        for name in self.networks:
            for aux in (True, False):
                chain = dataclasses.replace(OTHERS[name], aux=aux)
                if sum(isinstance(word, words.Conv) for _, word in words.named_words(chain)) == count:
                    return name
        raise UserError(
            f"{where} holds {self.title} of {count} convolutions, which resnets does not build; it builds "
            f"{', '.join(self.networks)}."
        )


_FULL = ("pre_logits.fc1.weight", "pre_logits.fc2.weight")  # fully connected layers that timm stores as convolutions


def _vgg_features(spec: Chain) -> Iterator[str]:
    """features.0, features.2, ...: ReLU and pooling are counted too."""
    place = 0
    for _, row in spec.parts:
        for word in row:
            if isinstance(word, words.Conv):
                yield f"features.{place}"
            if isinstance(word, words.Linear):
                return
            place += 1


def _vgg_torchvision(spec: Chain) -> Iterator[str]:
    yield from _vgg_features(spec)
    yield from ("classifier.0", "classifier.3", "classifier.6")


def _vgg_timm(spec: Chain) -> Iterator[str]:
    yield from _vgg_features(spec)
    yield from ("pre_logits.fc1", "pre_logits.fc2", "head.fc")


def _conv_bn(*names: str) -> Iterator[str]:
    for name in names:
        yield from (f"{name}.conv", f"{name}.bn")


def _numbered(place: str, mix: words.Word, first: int) -> Iterator[str]:
    """branch0, branch1.0, branch1.1 ...: a branch of several layers is a sequence, in which pooling counts."""
    for number, branch in enumerate(mix.branches, first):
        layers = [word for word in branch if isinstance(word, words.Conv | words.Pool)]
        for j, layer in enumerate(layers):
            if isinstance(layer, words.Conv):
                yield from _conv_bn(f"{place}.branch{number}" + (f".{j}" if len(layers) > 1 else ""))


def _googlenet(spec: Chain) -> Iterator[str]:
    heads = 0
    for name, row in spec.parts:
        if name.startswith("conv"):
            yield from _conv_bn(name)
        for word in row:
            if isinstance(word, words.Mix):
                yield from _numbered(name, word, 1)
            elif isinstance(word, words.Aux):
                heads += 1
                yield from _conv_bn(f"aux{heads}.conv")
                yield from (f"aux{heads}.fc1", f"aux{heads}.fc2")
    yield "fc"


_INCEPTION_V3 = {  # the kind of each mix, and its modules
    "A": "branch1x1 branch5x5_1 branch5x5_2 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 branch_pool",
    "B": "branch3x3 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
    "C": "branch1x1 branch7x7_1 branch7x7_2 branch7x7_3 branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 "
    "branch7x7dbl_5 branch_pool",
    "D": "branch3x3_1 branch3x3_2 branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4",
    "E": "branch1x1 branch3x3_1 branch3x3_2a branch3x3_2b branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a "
    "branch3x3dbl_3b branch_pool",
}
_MIXES = dict(zip(["5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"], "AAABCCCCDEE", strict=True))


def _inception_v3(spec: Chain) -> Iterator[str]:
    for name, row in spec.parts:
        if name.startswith("Conv2d"):
            yield from _conv_bn(name)
        elif name.startswith("Mixed"):
            kind = _INCEPTION_V3[_MIXES[name.removeprefix("Mixed_")]]
            yield from _conv_bn(*(f"{name}.{module}" for module in kind.split()))
        if any(isinstance(word, words.Aux) for word in row):
            yield from _conv_bn("AuxLogits.conv0", "AuxLogits.conv1")
            yield "AuxLogits.fc"
    yield "fc"


def _inception_resnet_v2(spec: Chain) -> Iterator[str]:
    repeats = {"block35": "repeat", "block17": "repeat_1", "block8": "repeat_2"}
    for name, row in spec.parts:
        if found := re.fullmatch(r"Conv2d_(\d\w)_\dx\d", name):
            yield from _conv_bn(f"conv2d_{found[1]}")
        elif name == "conv2d_7b":
            yield from _conv_bn(name)
        elif name.startswith("mixed"):
            yield from _numbered(name, row[0], 0)
        elif name.startswith("block"):
            kind, _, number = name.partition("_")
            theirs = "block8" if name == "block8_10" else f"{repeats[kind]}.{int(number) - 1}"
            yield from _numbered(theirs, row[0].branches[0][0], 0)
            yield f"{theirs}.conv2d"
    yield "classif"


def _micronet(spec: Chain) -> Iterator[str]:
    """Blocks of convolution, BN and ReLU; those of the first and of the last stand bare in the sequence."""
    yield from ("tnn_bin.0", "tnn_bin.1")
    yield from _conv_bn(*(f"tnn_bin.{i}" for i in (2, 3, 5, 6, 7, 9, 10)))
    yield from ("tnn_bin.11", "tnn_bin.12")


_HALF: tuple[Floats, Floats] = ((0.5,) * 3, (0.5,) * 3)  # pixels from -1 to 1
_CIFAR10: tuple[Floats, Floats] = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def _layout(
    title: str, sources: tuple[str, ...], marks: tuple[str, ...], networks: Mapping[str, Names], **more: object
) -> ChainLayout:
    made = ChainLayout(title, sources, marks, networks=networks, **more)  # type: ignore[arg-type]
    return dataclasses.replace(made, modules=made.list_modules)


CHAINS = (
    _layout(
        "timm's VGG",
        ("timm",),
        ("features.0.", "pre_logits."),
        {"vgg16": _vgg_timm, "vgg19": _vgg_timm},
        classifier="head.fc.weight",
        kernels={"rows.fc6.linear1.weight": 7, "rows.fc7.linear1.weight": 1},
        mean_std=lambda spec: IMAGENET_MEAN_STD,
    ),
    _layout(
        "torchvision's VGG",
        ("torchvision",),
        ("features.0.", "classifier.6."),
        {"vgg16": _vgg_torchvision, "vgg19": _vgg_torchvision},
        classifier="classifier.6.weight",
        mean_std=lambda spec: IMAGENET_MEAN_STD,
    ),
    _layout(
        "torchvision's googlenet",
        ("torchvision",),
        ("inception3a.branch1.conv.", "conv1.conv."),
        {"googlenet_bn": _googlenet},
        classifier="fc.weight",
        aux="aux1.",
        mean_std=lambda spec: _HALF,
    ),
    _layout(
        "torchvision's inception_v3",
        ("torchvision", "timm"),
        ("Conv2d_1a_3x3.", "Mixed_5b."),
        {"inception_v3": _inception_v3},
        classifier="fc.weight",
        aux="AuxLogits.",
        mean_std=lambda spec: _HALF,
    ),
    _layout(
        "timm's inception_resnet_v2",
        ("timm",),
        ("conv2d_1a.", "mixed_5b.", "repeat_1."),
        {"inception_resnet_v2": _inception_resnet_v2},
        classifier="classif.weight",
        mean_std=lambda spec: _HALF,
    ),
    _layout(
        "micronet's NIN with BN",
        ("micronet",),
        ("tnn_bin.0.", "tnn_bin.12."),
        {"nin_bn": _micronet},
        classifier="tnn_bin.11.weight",
        mean_std=lambda spec: _CIFAR10,
    ),
)
