"""Which network a file holds, from the names and shapes of its tensors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from resnets.chain import Chain, NetworkSpec
from resnets.errors import UserError
from resnets.spec import Spec
from resnets.weights.chain_layouts import ChainLayout
from resnets.weights.compare import find_differing_fields
from resnets.weights.layout import Layout
from resnets.weights.layouts import TIMM_V2
from resnets.zoo import NETWORKS

_CONV = {  # stage, place in the stage and number of a convolution
    "timm": re.compile(r"stages\.(\d{1,2})\.blocks\.(\d{1,3})\.conv(\d)\.weight"),
    "torchvision": re.compile(r"layer(\d{1,2})\.(\d{1,3})\.conv(\d)\.weight"),
}
_STEMS = {7: "imagenet", 3: "cifar"}


def infer_spec(tensors: Mapping[str, Tensor], layout: Layout, where: object) -> NetworkSpec | None:
    """The network that these tensors are; None where names and shapes do not say, as in files of ours without a spec.

    What no network of this package has (groups of filters, other ratios of widths) is named in a `UserError`.
    """
    if layout.is_ours:
        return None
    if isinstance(layout, ChainLayout):
        return layout.infer(tensors, where)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    timm = layout is TIMM_V2
    units = _units(shapes, _CONV["timm" if timm else "torchvision"])
    stem = shapes.get("stem.conv.weight" if timm else "conv1.weight", ())
    classifier = next((shapes[n] for n in ("head.fc.weight", "fc.weight", "linear.weight") if n in shapes), ())
    if not units or len(stem) != 4 or stem[3] not in _STEMS or not classifier:
        return None
    stages = [[units[key] for key in sorted(units) if key[0] == stage] for stage in sorted({key[0] for key in units})]
    first = stages[0][0]
    kernels = tuple(shape[3] for shape in first)
    found: dict[str, Any] = {
        "stem": _STEMS[stem[3]],
        "blocks": tuple(map(len, stages)),
        "widths": tuple(stage[0][0][0] for stage in stages),
        "kernels": kernels,
        "num_classes": classifier[0],
        "in_channels": stem[1],
        **{name: may[0] for name, may in layout.conventions.items() if name not in ("stem", "kernels")},
    }
    if stem[0] != found["widths"][0]:
        found["stem_width"] = stem[0]
    name = _name(found)
    spec = dataclasses.replace(NETWORKS[name], **found) if name in NETWORKS else Spec(name, **found)
    for stage, width in zip(stages, spec.widths, strict=True):
        for unit in stage:
            _require_ordinary(unit, width, spec, where)
    return spec


def _units(
    shapes: Mapping[str, tuple[int, ...]], pattern: re.Pattern[str]
) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """The shapes of the filters of each unit, by stage and place."""
    found: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        if (match := pattern.fullmatch(name)) and len(shape) == 4:
            found.setdefault((int(match[1]), int(match[2])), {})[int(match[3])] = shape
    return {place: [convs[k] for k in sorted(convs)] for place, convs in found.items()}


def _require_ordinary(unit: list[tuple[int, ...]], width: int, spec: Spec, where: object) -> None:
    """Refuse units that `Spec` cannot describe."""
    if tuple(shape[3] for shape in unit) != spec.kernels:
        raise UserError(f"{where} has units of different kernels, which no network of this package has.")
    for before, after in pairwise(unit):
        if after[1] != before[0]:
            raise UserError(
                f"{where} has convolutions in {before[0] // max(after[1], 1)} groups (ResNeXt), which resnets does not "
                "build."
            )
    if unit[0][0] != width or unit[-1][0] != width * spec.expansion:
        raise UserError(
            f"{where} has units of {unit[0][0]} filters inside and {unit[-1][0]} outside, where {spec.block} units "
            f"have {width} and {width * spec.expansion}: a wide network that resnets does not build."
        )


def _name(found: Mapping[str, Any]) -> str:
    """The name of the network of the papers that has this form, or one of the same kind."""
    form = ("stem", "blocks", "widths", "kernels", "order")
    for name, spec in NETWORKS.items():
        if all(getattr(spec, field) == found[field] for field in form) and spec.shortcut == found["shortcut"]:
            return name
    depth = sum(found["blocks"]) * len(found["kernels"]) + 2
    return f"{'preresnet' if found['order'] == 'full_preact' else 'resnet'}{depth}"


def find_differences(named: NetworkSpec, inferred: NetworkSpec) -> list[str]:
    """The fields of its form in which a named network is not what a file holds."""
    if isinstance(named, Chain) or isinstance(inferred, Chain):
        return [name for name in find_differing_fields(named, inferred) if name != "input_size"]
    fields = ("stem", "blocks", "widths", "kernels", "order", "in_channels", "num_classes")
    return [field for field in fields if getattr(named, field) != getattr(inferred, field)]
