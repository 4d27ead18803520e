"""How other libraries name the tensors of the same networks, and which conventions they follow.

A `Layout` lists a library's modules beside ours by walking a spec; read from left to right it writes their
files, from right to left it loads them. Names and shapes can agree while the function differs, so a layout
also lists the conventions that a net must follow before its weights mean the same in both libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD
from resnets.spec import Spec
from resnets.unit_spec import KERNELS, ORDERS, Identity
from resnets.weights.compare import find_differing_fields, format_creation, format_fields

Floats = tuple[float, ...]
Pairs = Iterator[tuple[str, str]]  # our module, their module


@dataclass(frozen=True)
class Layout:
    """A library's names for our modules, with the conventions behind them."""

    title: str
    sources: tuple[str, ...]  # what `source` and `format` call it; the first is what a report says
    marks: tuple[str, ...]  # each begins some name in every file of this layout
    modules: Callable[[Spec], Pairs] | None = None  # none where their names are ours
    conventions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # field of a spec -> what it may be
    conv_classifier: bool = False  # the classifier is a 1x1 convolution
    mean_std: Callable[[Spec], tuple[Floats, Floats] | None] = lambda spec: None  # with which its nets were trained
    first: tuple[str, int] | None = (
        None  # the name of the first filters and their size, where names alone do not distinguish libraries
    )

    def names(self, spec: Spec, tensors: Collection[str]) -> dict[str, str]:
        """Map our tensors' names to theirs."""
        if self.modules is None:
            return {name: name for name in tensors}
        theirs = dict(self.modules(spec))
        split = {name: name.rpartition(".") for name in tensors}
        return {name: f"{theirs[module]}.{leaf}" for name, (module, _, leaf) in split.items()}

    def shape(self, name: str, ours: torch.Size) -> torch.Size:
        """Their shape of our tensor `name`; the numbers lie in memory in the same order."""
        return torch.Size([*ours, 1, 1]) if self.conv_classifier and name == "classifier.weight" else ours

    def adapt(self, spec: Spec) -> dict[str, Any]:
        """The fields in which a spec differs from the conventions, with the values that follow them."""
        return {k: may[0] for k, may in self.conventions.items() if getattr(spec, k) not in may}

    def require(self, spec: Spec, what: str) -> None:
        """Refuse a net that computes something else from the same tensors."""
        fitted = self.adapt(spec)
        wanted = dataclasses.replace(spec, **fitted)
        if wrong := [name for name in find_differing_fields(spec, wanted) if name in fitted]:
            wanted = dataclasses.replace(spec, **{name: fitted[name] for name in wrong})
            raise UserError(
                f"{what} {self.title}, which means {format_fields(wanted, wrong)}, and the net has "
                f"{format_fields(spec, wrong)}: build it with {format_creation(wanted)}."
            )


# --- the layouts ------------------------------------------------------------------------------


def _torchvision(spec: Spec) -> Pairs:
    """conv1, bn1, layer1.0.conv1, layer1.0.bn1, ..., layer1.0.downsample.0, ..., fc."""
    yield from _body_of_original(spec)
    yield "classifier", "fc"


def _akamaster(spec: Spec) -> Pairs:
    """The same, with the classifier called `linear`."""
    yield from _body_of_original(spec)
    yield "classifier", "linear"


def _body_of_original(spec: Spec) -> Pairs:
    yield "stem.conv", "conv1"
    yield "stem.act.bn", "bn1"
    for unit in spec.units():
        ours, theirs = f"units.{unit.index}", f"layer{unit.stage + 1}.{unit.place}"
        for k, _ in enumerate(unit.convs, 1):
            yield f"{ours}.residual.conv{k}", f"{theirs}.conv{k}"
            yield f"{ours}.residual.act{k}.bn", f"{theirs}.bn{k}"
        if unit.projects:
            yield f"{ours}.resize.conv", f"{theirs}.downsample.0"
            yield f"{ours}.resize.bn", f"{theirs}.downsample.1"


def _timm_v2(spec: Spec) -> Pairs:
    """stem.conv, stages.0.blocks.0.norm1, stages.0.blocks.0.conv1, ..., norm, head.fc: BN before each convolution."""
    yield "stem.conv", "stem.conv"
    for unit in spec.units():
        ours, theirs = f"units.{unit.index}", f"stages.{unit.stage}.blocks.{unit.place}"
        yield f"{ours}.shared.bn" if unit.projects else f"{ours}.residual.before.bn", f"{theirs}.norm1"
        for k, _ in enumerate(unit.convs, 1):
            yield f"{ours}.residual.conv{k}", f"{theirs}.conv{k}"
            yield f"{ours}.residual.act{k}.bn", f"{theirs}.norm{k + 1}"
        if unit.projects:
            yield f"{ours}.resize.conv", f"{theirs}.downsample.conv"
    yield "last.bn", "norm"
    yield "classifier", "head.fc"


_COMMON = {"shortcut": (Identity(),), "bn_eps": (1e-5,)}
_IMAGENET = {
    "stem": ("imagenet",),
    "kernels": (KERNELS["basic"], KERNELS["bottleneck"]),
    "resize": ("project",),
    "stride_on": ("3x3",),
}

_CIFAR_MEAN_STD = {  # by classes, as chenyaofo's logs of training state them
    10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    100: ((0.507, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
}

OURS = Layout("resnets", ("resnets",), ("units.",))
TIMM_V2 = Layout(
    "timm's resnetv2",
    ("timm",),
    ("stages.",),
    _timm_v2,
    {"order": ("full_preact",), "stem_activation": (False,), **_IMAGENET, **_COMMON},
    conv_classifier=True,
)
AKAMASTER = Layout(
    "akamaster's CIFAR nets",
    ("akamaster",),
    ("layer1.", "linear."),
    _akamaster,
    {
        "order": ("original",),
        "stem_activation": (True,),
        "stem": ("cifar",),
        "kernels": (KERNELS["basic"],),
        "resize": ("pad_both",),
        **_COMMON,
    },
    mean_std=lambda spec: IMAGENET_MEAN_STD,  # on CIFAR too
)
CHENYAOFO = Layout(
    "chenyaofo's CIFAR nets",
    ("chenyaofo",),
    ("layer1.", "fc."),
    _torchvision,
    {
        "order": ("original",),
        "stem_activation": (True,),
        "stem": ("cifar",),
        "kernels": (KERNELS["basic"],),
        "resize": ("project",),
        **_COMMON,
    },
    mean_std=lambda spec: _CIFAR_MEAN_STD.get(spec.num_classes),
    first=("conv1.weight", 3),
)
TORCHVISION = Layout(
    "torchvision's resnet",
    ("torchvision", "timm"),
    ("layer1.",),
    _torchvision,
    {"order": ("original",), "stem_activation": (True,), **_IMAGENET, **_COMMON},
)
LAYOUTS = (OURS, TIMM_V2, AKAMASTER, CHENYAOFO, TORCHVISION)  # the marks of some include torchvision's: it comes last
PEERS = ("torchvision", "timm", "akamaster", "chenyaofo")


def recognise(tensors: Mapping[str, Tensor]) -> Layout | None:
    """The layout of a file with these tensors."""
    return next((layout for layout in LAYOUTS if _has_marks(tensors, layout)), None)


def _has_marks(tensors: Mapping[str, Tensor], layout: Layout) -> bool:
    if layout.first and (layout.first[0] not in tensors or tensors[layout.first[0]].shape[-1:] != (layout.first[1],)):
        return False
    return all(any(name.startswith(mark) for name in tensors) for mark in layout.marks)


def layout_of(peer: str, spec: Spec) -> Layout:
    """How a peer writes a net of this spec: timm's pre-activation nets have names of their own."""
    if peer == "timm":
        return TIMM_V2 if ORDERS[spec.order].preactivated else TORCHVISION
    return next(layout for layout in LAYOUTS if peer in layout.sources)
