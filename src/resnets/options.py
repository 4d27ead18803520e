"""Options, declared once: a frozen dataclass whose fields have type, default, help and group.

The same record defines the keywords of a function (`takes`), the options of a command (`resnets.cli.options`), the keys
of a configuration file, and what config.json records. To add an option, add a field. No torch here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from resnets.errors import UserError, one_of, shown

SEEDS = -(2**63), 2**64 - 1  # the range that torch accepts
SETS = "cifar10, cifar100, fashion-mnist"  # as in `data.sets`, which imports numpy
DATA = f"{SETS}, synthetic[:N], imagenet:DIR or a folder of class folders; voc:DIR, coco:JSON:DIR, yolo:DIR, csv:FILE"
BAD_BOXES = {  # policies
    "error": "refuse them",
    "clip": "cut those that reach beyond the picture, skip the others",
    "skip": "leave them out",
}
DEVICE = "cpu, cuda, mps ... (auto: an accelerator if there is one)"

THREADS = "threads that compute: a number, or auto to follow what else the machine does"

Record = TypeVar("Record")
Result = TypeVar("Result")


def option(
    default: Any,
    help: str,
    *,
    group: str = "",
    metavar: str = "",
    choices: Iterable[str] = (),
    parse: Callable[[str], Any] | None = None,
    least: float | None = None,
    most: float | None = None,
    short: str = "",
    aliases: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """Declare a field of a record.

    `parse` converts the text of a command line where the type is not enough. `aliases` maps other names to the text
    that their value becomes: {"epochs": "{}ep"}; {"batch_size": "{}"} keeps the value.
    """
    known = {
        **{"help": help, "group": group, "metavar": metavar, "choices": tuple(choices), "parse": parse},
        **{"least": least, "most": most, "short": short, "aliases": aliases or {}, **more},
    }
    return dataclasses.field(default=default, metadata=known)


def parse_threads(text: str) -> str:
    """`auto` or a whole number."""
    if text != "auto" and not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 1024):
        raise UserError(f"threads must be auto or a whole number from 1 to 1024, not {shown(text)}.")
    return text


def list_meanings(meanings: Mapping[str, str]) -> str:
    """`pad (every second pixel), project (a 1x1)`, for help."""
    return ", ".join(f"{word} ({meaning})" if meaning else word for word, meaning in meanings.items())


class Options:
    """Base class of option records: checks the types and bounds of the fields."""

    def __post_init__(self) -> None:
        for field in fields_of(type(self)).values():
            object.__setattr__(self, field.name, check(field, getattr(self, field.name)))

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not at their default, as plain data."""
        given = {name: getattr(self, name) for name in fields_of(type(self))}
        defaults = {name: field.default for name, field in fields_of(type(self)).items()}
        return {name: _plain(value) for name, value in given.items() if value != defaults[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def fields_of(record: type) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a record that are options, by name."""
    return {field.name: field for field in dataclasses.fields(record) if "help" in field.metadata}


# --- values ---------------------------------------------------------------------------------


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a finite number"),
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
}


def kind_of(field: dataclasses.Field[Any]) -> str:
    """The type of a field without `None`, as it is written: `int`, `float`, `str`, `bool` or another."""
    return str(field.type).replace(" | None", "")


def check(field: dataclasses.Field[Any], value: Any) -> Any:
    """Check and convert the value of a field."""
    known, kind = field.metadata, kind_of(field)
    if value is None and "None" in str(field.type):
        return None
    if isinstance(value, str) and known.get("parse") and kind != "str":
        value = known["parse"](value)
    if isinstance(value, list):
        value = tuple(value)
    if kind == "str" and isinstance(value, Path):
        value = str(value)
    if kind in _KINDS:
        types, words = _KINDS[kind]
        wrong = not isinstance(value, types) or (kind != "bool" and isinstance(value, bool))
        if wrong or (isinstance(value, float) and not math.isfinite(value)):
            raise UserError(f"{field.name} must be {words}, not {shown(value)}.")
        if kind == "float":  # 1 and 1.0 are one value
            value = float(value)
    if known.get("choices") and value not in known["choices"]:
        raise one_of(field.name, value, known["choices"])
    least, most = known.get("least"), known.get("most")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise UserError(f"{field.name} must be {bounds}, not {shown(value)}.")
    return value


def parse_value(field: dataclasses.Field[Any], text: str) -> Any:
    """Convert the text of a command line to the value of a field."""
    if field.metadata.get("parse"):
        return check(field, field.metadata["parse"](text))
    match kind_of(field):
        case "int":
            return check(field, parse_whole(text))
        case "float":
            try:
                return check(field, float(text))
            except ValueError as error:
                raise error if isinstance(error, UserError) else UserError(f"{shown(text)} is not a number") from None
        case "bool":
            if text.lower() not in _BOOLS:
                raise UserError(f"{shown(text)} is neither true nor false")
            return _BOOLS[text.lower()]
    return check(field, text)


_BOOLS = {"true": True, "yes": True, "false": False, "no": False}


def parse_whole(text: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]{1,50}", text):
        raise UserError(f"{shown(text)} is not a whole number")
    return int(text)


def parse_seed(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text) or not SEEDS[0] <= int(text) <= SEEDS[1]:
        raise UserError(f"{shown(text)} is not a whole number of 64 bits")
    return int(text)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0,1,2`."""
    return tuple(map(parse_seed, text.split(",")))


def parse_numbers(text: str, kind: type = int) -> tuple[Any, ...]:
    """`1,2,3`."""
    try:
        return tuple(map(kind, text.split(",")))
    except ValueError:
        what = "whole numbers such as 1,2,3" if kind is int else "numbers such as 1,2.5"
        raise UserError(f"{shown(text)} is not a list of {what}") from None


def parse_reals(text: str) -> tuple[float, ...]:
    return parse_numbers(text, float)


def parse_size(text: str) -> int | tuple[int, int]:
    """`320` or `320x256`."""
    if not re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})?", text):
        raise UserError(f"{shown(text)} is neither a side such as 320 nor a height and width such as 320x256")
    height, _, width = text.partition("x")
    return (int(height), int(width)) if width else int(height)


# --- keywords -------------------------------------------------------------------------------


def split_keywords(keywords: Mapping[str, Any], *records: type) -> list[dict[str, Any]]:
    """Sort keywords, or keys of a configuration file, into the fields of each record; aliases are resolved."""
    found: list[dict[str, Any]] = [{} for _ in records]
    for name, value in keywords.items():
        for record, given in zip(records, found, strict=True):
            if resolved := _resolve(record, name, value):
                if resolved[0] in given:
                    raise UserError(f"{name} and {resolved[0]} are the same option; give it once.")
                given[resolved[0]] = resolved[1]
                break
        else:
            raise one_of("option", name, [known for record in records for known in _names(record)])
    return found


def _names(record: type) -> list[str]:
    """The names of a record's fields, with aliases."""
    return [name for field in fields_of(record).values() for name in (field.name, *field.metadata["aliases"])]


def _resolve(record: type, name: str, value: Any) -> tuple[str, Any] | None:
    for field in fields_of(record).values():
        if field.name == name:
            return name, value
        if name in (aliases := field.metadata.get("aliases", {})):
            return field.name, value if aliases[name] == "{}" else aliases[name].format(value)
    return None


def takes(record: type[Record]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a function to take the fields of a record as keywords.

    The function has a parameter `options`. The caller gives a record as `options=`, or keywords, or both: keywords
    replace fields of the record.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(function)
        own = set(signature.parameters)

        @functools.wraps(function)
        def call(*args: Any, options: Record | None = None, **keywords: Any) -> Result:
            mine = {name: keywords.pop(name) for name in own & keywords.keys()}
            (given,) = split_keywords(keywords, record)
            chosen = record(**given) if options is None else dataclasses.replace(options, **given)  # type: ignore[type-var]
            return function(*args, options=chosen, **mine)

        call.__signature__ = _signature(signature, [record])  # type: ignore[attr-defined]
        call.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{describe_options([record])}"
        return call

    return decorate


def _signature(signature: inspect.Signature, records: Sequence[type]) -> inspect.Signature:
    kept = [p for p in signature.parameters.values() if p.name != "options" and p.kind is not p.VAR_KEYWORD]
    added = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for record in records
        for field in fields_of(record).values()
        if field.name not in signature.parameters
    ]
    return signature.replace(parameters=[*kept, *added])


def describe_options(records: Sequence[type]) -> str:
    """A list of the options, for the end of a docstring."""
    lines = ["Options:"]
    for record in records:
        for field in fields_of(record).values():
            default = "" if field.default is dataclasses.MISSING else f" (default: {field.default!r})"
            text = f"{field.name}: {field.metadata['help']}{default}"
            lines += textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)
