"""The named networks, of the papers and two of ours: one table, no torch.

`NETWORKS` maps a name to its `Spec`, `OTHERS` the name of another system of the papers' tables to its `Chain`.
20 to 110 and 1202 layers are two-layer nets for CIFAR, 164 and
1001 bottlenecks for CIFAR (both 6n+2 and 9n+2 fit some of these depths, so the table decides), 18 to
200 the ImageNet nets. `preresnet12_w32` and `preresnet12_w48` are ours: 12 layers, 32 or 48 filters in the first stage.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable
from typing import Any

from resnets.chain import Chain
from resnets.errors import UserError, one_of
from resnets.options import fields_of, option, parse_numbers
from resnets.other_systems import OTHERS
from resnets.spec import Spec
from resnets.unit_spec import KERNELS, Plain, Shortcut, parse_shortcut

CIFAR_WIDTHS = (16, 32, 64)
IMAGENET_WIDTHS = (64, 128, 256, 512)

CIFAR = {  # layers -> kernels
    20: "basic",
    32: "basic",
    44: "basic",
    56: "basic",
    110: "basic",
    164: "bottleneck",
    1001: "bottleneck",
    1202: "basic",
}
IMAGENET = {  # layers -> kernels, units in each stage
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
    200: ("bottleneck", (3, 24, 36, 3)),
}
PLAIN = (20, 32, 44, 56, 110, 18, 34)
WIDE = (32, 48)  # filters in the first stage of 12 layers, for short trainings: docs/decisions/0004-cifar-quick.md


def blocks_of(depth: int, kernels: tuple[int, ...], stages: int = 3) -> tuple[int, ...]:
    """Units in each of equal stages for a net of `depth` layers: 6n+2, 9n+2, 3n+2 in three stages.

    1001 is the papers' own count: 333 bottlenecks are 999 layers, and with the first and the last 1001.
    """
    step = len(kernels) * stages
    n, rest = divmod(depth - 2, step)
    if n < 1 or rest:
        low = max(n, 1)
        raise UserError(
            f"depth {depth} is impossible: {stages} equal stages of {len(kernels)}-layer units make {step}n+2 layers; "
            f"the nearest are {step * low + 2} and {step * (low + 1) + 2}."
        )
    return (n,) * stages


def _table() -> dict[str, Spec]:
    nets = []
    for depth, block in [*CIFAR.items(), ("110_1layer", "one_layer")]:
        kernels = KERNELS[block]
        layers = int(str(depth).split("_")[0])
        net = Spec(
            name=f"resnet{depth}",
            stem="cifar",
            blocks=blocks_of(layers, kernels),
            widths=CIFAR_WIDTHS,
            kernels=kernels,
            resize="project" if block == "bottleneck" else "pad",
            stride_on="1x1",
        )
        nets += [net, dataclasses.replace(net, name=f"pre{net.name}", order="full_preact")]
    for width in WIDE:
        widths = width, 2 * width, 4 * width
        wide = Spec(f"preresnet12_w{width}", "cifar", (1, 2, 2), widths, order="full_preact", stride_on="1x1")
        nets.append(wide)
    for depth, (block, blocks) in IMAGENET.items():
        net = Spec(
            name=f"resnet{depth}",
            stem="imagenet",
            blocks=blocks,
            widths=IMAGENET_WIDTHS,
            kernels=KERNELS[block],
            resize="project",
            num_classes=1000,
        )
        nets += [net, dataclasses.replace(net, name=f"pre{net.name}", order="full_preact")]
    table = {net.name: net for net in nets}
    for depth in PLAIN:
        net = table[f"resnet{depth}"]
        table[f"plain{depth}"] = dataclasses.replace(net, name=f"plain{depth}", shortcut=Plain())
    return {name: table[name] for name in sorted(table, key=_by_family_and_depth)}


def _by_family_and_depth(name: str) -> tuple[int, int, str]:
    digits = name.removeprefix(_family(name)).partition("_")[0]
    return ("resnet", "preresnet", "plain").index(_family(name)), int(digits), name


def _family(name: str) -> str:
    return "plain" if name.startswith("plain") else "preresnet" if name.startswith("pre") else "resnet"


NETWORKS: dict[str, Spec] = _table()
FAMILIES = {
    "residual": "networks of the papers",
    "plain": "the same networks without shortcuts",
    "others": "other systems of the papers' tables",
}


def family_of(name: str) -> str:
    """The family that `resnets models` lists a network under."""
    return "others" if name in OTHERS else "plain" if _family(name) == "plain" else "residual"


def list_models(pattern: str | None = None) -> list[str]:
    """The names of networks that match a shell pattern; without one, the residual and plain networks of the papers.

    >>> resnets.list_models("preresnet2*")
    ['preresnet20', 'preresnet200']
    >>> resnets.list_models("vgg*")
    ['vgg16', 'vgg19']
    """
    if pattern is None:
        return list(NETWORKS)
    return [name for name in (*NETWORKS, *OTHERS) if fnmatch.fnmatchcase(name, pattern)]


def spec_of(name: str, **changes: Any) -> Spec | Chain:
    """The named network's description, with fields replaced: a `Spec`, or of other systems a `Chain`.

    Besides the fields of `Spec`: `depth=` sets equal stages from a number of layers; `blocks=` may be one
    number for all stages; `kernels=` may be a word (`"bottleneck"`); `shortcut=` may be text
    (`"exclusive_gate:-6"`).

    >>> resnets.spec_of("preresnet110", shortcut="exclusive_gate:-6").depth
    110
    """
    if name in OTHERS:
        return _chain_of(OTHERS[name], changes)
    if name not in NETWORKS:
        raise _unknown(name)
    base = NETWORKS[name]
    _check_fields(name, changes)
    if isinstance(kernels := changes.get("kernels"), str):
        if kernels not in KERNELS:
            raise one_of("kernels", kernels, KERNELS)
        changes["kernels"] = KERNELS[kernels]
    if isinstance(shortcut := changes.get("shortcut"), str):
        changes["shortcut"] = parse_shortcut(shortcut)
    elif isinstance(shortcut, type) and issubclass(shortcut, Shortcut):
        changes["shortcut"] = shortcut()
    for key in ("widths", "kernels", "blocks"):
        if isinstance(changes.get(key), Iterable) and not isinstance(changes[key], str):
            changes[key] = tuple(changes[key])
    stages = len(changes.get("widths") or base.widths)
    if "depth" in changes:
        changes["blocks"] = _blocks_for_depth(base, stages, changes)
    elif isinstance(blocks := changes.get("blocks"), int):
        changes["blocks"] = (blocks,) * stages
    return dataclasses.replace(base, **changes)


def _check_fields(name: str, changes: Iterable[str]) -> None:
    """Refuse fields that a residual network does not have."""
    fields = {f.name for f in dataclasses.fields(Spec)} - {"name"} | {"depth"}
    for key in changes:
        if key in _CHAIN_ONLY:
            raise UserError(f"{name} is a residual network and has no {key}; that is for other systems, as googlenet.")
        if key not in fields:
            raise one_of("option", key, sorted(fields))


_CHAIN_ONLY = sorted(set(fields_of(Chain)) - {f.name for f in dataclasses.fields(Spec)})


def _chain_of(base: Chain, changes: dict[str, Any]) -> Chain:
    fields = set(fields_of(Chain)) - {"name"}
    for key in changes:
        if key not in fields:
            if key == "depth" or key in {f.name for f in dataclasses.fields(Spec)}:
                raise UserError(f"{base.name} has no residual units, and so no {key}; leave it out.")
            raise one_of("option", key, sorted(fields))
    if isinstance(rows := changes.get("rows"), Iterable) and not isinstance(rows, str):
        changes["rows"] = tuple(rows)
    return dataclasses.replace(base, **changes)


def _blocks_for_depth(base: Spec, stages: int, changes: dict[str, Any]) -> tuple[int, ...]:
    depth = changes.pop("depth")
    if "blocks" in changes:
        raise UserError("give depth or blocks, not both.")
    if base.stem == "imagenet" and len(set(base.blocks)) > 1:
        raise UserError(f"{base.name} has stages of unequal length, so depth alone does not fix it; give blocks.")
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise UserError(f"depth must be a whole number, not {depth!r}.")
    return blocks_of(depth, changes.get("kernels", base.kernels), stages)


def _unknown(name: str) -> UserError:
    """The nearest names: by depth where the name is a family and a number."""
    family = _family(str(name))
    digits = str(name).removeprefix(family)
    if not re.fullmatch("[0-9]{1,6}", digits):
        return one_of("network", name, {**NETWORKS, **OTHERS})
    depth = int(digits)
    of_family = [net for net in NETWORKS if _family(net) == family and "_" not in net]
    near = sorted(of_family, key=lambda net: abs(int(net.removeprefix(family)) - depth))[:3]
    other = ""
    if depth > 2 and (depth - 2) % 6 == 0 and family != "plain":
        other = f" A two-layer CIFAR net of {depth} layers is {family}20 with depth={depth}."
    return UserError(f"unknown network {name!r}: did you mean {' or '.join(near)}?{other}")


# --- the fields of a network as options --------------------------------------------------------


def _parse_blocks(text: str) -> int | tuple[int, ...]:
    """`18,18,18`, or one number for all stages."""
    found = parse_numbers(text)
    return found if len(found) > 1 else found[0]


def _parse_kernels(text: str) -> str | tuple[int, ...]:
    """A name such as `bottleneck`, or sizes such as `1,3,1`."""
    return parse_numbers(text) if text[:1].isdigit() else text


_PARSERS = {"blocks": _parse_blocks, "widths": parse_numbers, "kernels": _parse_kernels}


def _fields() -> list[tuple[str, str, Any]]:
    depth = option(None, "weight layers, in stages of equal length", group="network", metavar="N")
    found: list[tuple[str, str, Any]] = [("depth", "int | None", depth)]
    for field in dataclasses.fields(Spec):
        if field.name != "name":
            kind = str(field.type) if field.type in ("int", "float", "bool", "str") else "object"
            known = {"metavar": field.metadata.get("metavar", ""), "parse": _PARSERS.get(field.name)}
            made = option(None, field.metadata.get("help", field.name), group="network", **known)
            found.append((field.name, f"{kind} | None", made))
    for name in ("input_size", "aux"):  # of other systems
        field = fields_of(Chain)[name]
        made = option(None, field.metadata["help"], group="network", metavar=field.metadata["metavar"])
        found.append((name, f"{field.type} | None", made))
    return found


NetworkOptions = dataclasses.make_dataclass("NetworkOptions", _fields(), frozen=True)
NetworkOptions.__doc__ = "What differs from the named network: the fields of `Spec` or `Chain`, and `depth`."
