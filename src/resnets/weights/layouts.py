"""How other libraries name the tensors of the same networks, and which conventions they follow.

A `Layout` lists a library's modules beside ours by walking a spec; read from left to right it writes their
files, from right to left it loads them. Names and shapes can agree while the function differs, so a layout
also lists the conventions that a net must follow before its weights mean the same in both libraries. Those of
residual networks stand here, those of other systems in `chain_layouts`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from resnets.chain import Chain, NetworkSpec
from resnets.errors import UserError
from resnets.metadata import IMAGENET_MEAN_STD
from resnets.spec import Spec
from resnets.unit_spec import KERNELS, ORDERS, Identity
from resnets.weights.chain_layouts import CHAINS
from resnets.weights.layout import Layout, Pairs

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
OURS_CHAIN = Layout("resnets", ("resnets",), ("rows.",))
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
LAYOUTS: tuple[Layout, ...] = (  # the marks of some include torchvision's: it comes last
    *(OURS, OURS_CHAIN, *CHAINS, TIMM_V2, AKAMASTER, CHENYAOFO, TORCHVISION),
)
PEERS = ("torchvision", "timm", "akamaster", "chenyaofo", "micronet")


def recognise(tensors: Mapping[str, Tensor]) -> Layout | None:
    """The layout of a file with these tensors."""
    return next((layout for layout in LAYOUTS if _has_marks(tensors, layout)), None)


def _has_marks(tensors: Mapping[str, Tensor], layout: Layout) -> bool:
    if layout.first and (layout.first[0] not in tensors or tensors[layout.first[0]].shape[-1:] != (layout.first[1],)):
        return False
    return all(any(name.startswith(mark) for name in tensors) for mark in layout.marks)


def layout_of(peer: str, spec: NetworkSpec) -> Layout:
    """How a peer writes a net of this spec: timm's pre-activation nets have names of their own."""
    if isinstance(spec, Chain):
        found = next((layout for layout in CHAINS if peer in layout.sources and layout.find(spec)), None)
        if found is None:
            raise UserError(f"{peer} has no {spec.name}, so its weights cannot be written in that format.")
        return found
    if peer == "timm":
        return TIMM_V2 if ORDERS[spec.order].preactivated else TORCHVISION
    residual = (AKAMASTER, CHENYAOFO, TORCHVISION)
    if not (fitting := [layout for layout in residual if peer in layout.sources]):
        raise UserError(f"{peer} has no {spec.name}, so its weights cannot be written in that format.")
    return fitting[0]
