"""The options of a network: one for every field of `Spec`, and `depth`."""

from __future__ import annotations

import dataclasses
from typing import Any

from resnets.errors import UserError, shown
from resnets.options import option
from resnets.spec import Spec


def _parse_blocks(text: str) -> int | tuple[int, ...]:
    """`18,18,18`, or one number for all stages."""
    found = _parse_numbers(text)
    return found if len(found) > 1 else found[0]


def _parse_kernels(text: str) -> str | tuple[int, ...]:
    """A name such as `bottleneck`, or sizes such as `1,3,1`."""
    return _parse_numbers(text) if text[:1].isdigit() else text


def _parse_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise UserError(f"{shown(text)} is not whole numbers with commas between them") from None


_PARSERS = {"blocks": _parse_blocks, "widths": _parse_numbers, "kernels": _parse_kernels}


def _fields() -> list[tuple[str, str, Any]]:
    depth = option(None, "weight layers, in stages of equal length", group="network", metavar="N")
    found: list[tuple[str, str, Any]] = [("depth", "int | None", depth)]
    for field in dataclasses.fields(Spec):
        if field.name != "name":
            kind = str(field.type) if field.type in ("int", "float", "bool", "str") else "object"
            known = {"metavar": field.metadata.get("metavar", ""), "parse": _PARSERS.get(field.name)}
            made = option(None, field.metadata.get("help", field.name), group="network", **known)
            found.append((field.name, f"{kind} | None", made))
    return found


NetworkOptions = dataclasses.make_dataclass("NetworkOptions", _fields(), frozen=True)
NetworkOptions.__doc__ = "What differs from the named network: the fields of `Spec`, and `depth`."
