"""Compare specs, and write the call that builds one: no torch here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from resnets.chain import Chain, NetworkSpec
from resnets.other_systems import OTHERS
from resnets.unit_spec import ORDERS, Shortcut, fields_of
from resnets.zoo import NETWORKS


def find_differing_fields(a: NetworkSpec, b: NetworkSpec) -> list[str]:
    """The fields in which two networks compute different functions of the same weights; of two kinds, the name."""
    if type(a) is not type(b):
        return ["name"]
    left, right = _decisive(a), _decisive(b)
    return [field for field in left if left[field] != right[field]]


def _decisive(spec: NetworkSpec) -> dict[str, Any]:
    """The fields of a network, with None where a field does not change what it computes."""
    if isinstance(spec, Chain):
        fields = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
        words = tuple(words for _, words in spec.parts)
        return {**fields, "name": None, "bn_momentum": None, "rows": words}
    idle = {"name", "bn_momentum"}
    if spec.kernels[0] == 3 or 3 not in spec.kernels:
        idle.add("stride_on")  # both words name the first convolution
    shortcut = spec.shortcut
    resizes = not (shortcut.plain or shortcut.projects)  # these have no shortcut, or weights on every one
    if not resizes:
        idle.add("resize")
    if not (resizes and spec.resize != "project" and ORDERS[spec.order].preactivated):
        idle.add("share_activation")
    fields = {f.name: None if f.name in idle else getattr(spec, f.name) for f in dataclasses.fields(spec)}
    kept = [f.name for f in fields_of(type(shortcut)) if f.name not in shortcut.initial]
    fields["shortcut"] = type(shortcut)(**{name: getattr(shortcut, name) for name in kept})
    return fields


def format_fields(spec: NetworkSpec, fields: Iterable[str]) -> str:
    """`order='original', num_classes=10`: fields as `create` takes them."""
    values = {field: getattr(spec, field) for field in fields}
    if "rows" in values:
        values["rows"] = f"those of {spec.name}"
    return ", ".join(f"{k}={(str(v) if isinstance(v, Shortcut) else v)!r}" for k, v in values.items())


def format_creation(spec: NetworkSpec) -> str:
    """The call that builds a spec's net."""
    base: NetworkSpec | None = OTHERS.get(spec.name) if isinstance(spec, Chain) else NETWORKS.get(spec.name)
    if base is None or (isinstance(spec, Chain) and spec.rows != OTHERS[spec.name].rows):
        return f"resnets.nn.build({spec!r})"
    changed = format_fields(
        spec, [f.name for f in dataclasses.fields(spec) if getattr(spec, f.name) != getattr(base, f.name)]
    )
    return f"resnets.create({spec.name!r}{', ' + changed if changed else ''})"
