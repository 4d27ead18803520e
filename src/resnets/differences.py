"""What differs between runs, in readable words: fields of the network and of the recipe, data, seed, weights.

A run has some forty fields. Those that its network's and its recipe's names stand for are left out where the names are
shown. No torch here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from resnets.chain import NetworkSpec
from resnets.other_systems import OTHERS
from resnets.recipe import RECIPES
from resnets.runs import RunKey
from resnets.zoo import NETWORKS

_FIRST, _LAST = ("network", "data", "recipe"), ("weights", "seed")  # the order of columns; other fields between them
_BY_DATA = ("num_classes", "in_channels")  # what the images decide, unless the user does
_LONGEST = 28  # characters of a value in a table


def list_fields(key: RunKey) -> dict[str, Any]:
    """Every field of a run by its own name; `network` and `recipe` are the names of these."""
    whole, recipe = key.to_dict(), dataclasses.asdict(key.recipe)
    network, data = dict(whole.pop("network")), whole.pop("data")
    named = {"network": network.pop("name"), "data": data["name"], "recipe": recipe.pop("name")}
    return {**named, **network, **recipe, "data_digest": data["digest"], "weights": "", **_leave(whole, "recipe")}


def _leave(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def find_differences(keys: Sequence[RunKey]) -> dict[str, tuple[str, ...]]:
    """Every field that differs, with the value of each run as text."""
    fields = [list_fields(key) for key in keys]
    columns = {name: [each.get(name) for each in fields] for each in fields for name in each}
    different = {name: column for name, column in columns.items() if any(value != column[0] for value in column)}
    return {name: _write_column(different[name]) for name in sorted(different, key=_place)}


def summarize_differences(keys: Sequence[RunKey]) -> dict[str, tuple[str, ...]]:
    """The fields that differ, without those that follow from the names of network, recipe and data."""
    chosen = set().union(*(_list_changes(list_fields(key)) for key in keys))
    found = {name: column for name, column in find_differences(keys).items() if name in chosen}
    for name in _BY_DATA:
        values: dict[tuple[str, str], set[Any]] = {}
        for key in keys:
            values.setdefault((key.data, key.digest), set()).add(key.to_dict()["network"].get(name))
        if all(len(each) == 1 for each in values.values()):
            found.pop(name, None)
    if len({key.data for key in keys}) == len({(key.data, key.digest) for key in keys}):
        found.pop("data_digest", None)
    return found


def _list_changes(fields: Mapping[str, Any]) -> set[str]:
    """The fields that the names of a run's network and recipe do not tell."""
    name, recipe = fields["network"], RECIPES.get(fields["recipe"])
    network: NetworkSpec | None = NETWORKS.get(name) or OTHERS.get(name)
    known = {**(network.to_dict() if network else {}), **(dataclasses.asdict(recipe) if recipe else {})}
    return {name for name, value in fields.items() if name not in known or known[name] != value}


def _place(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else 3 + (_LAST.index(name) + 1 if name in _LAST else 0)


def label_runs(keys: Sequence[RunKey], always: Sequence[str] = ("network",)) -> list[str]:
    """A name for each run that tells what is different about it: `preresnet20, shortcut scale:0.5:1, seed 1`."""
    columns = {**dict.fromkeys(always, ()), **summarize_differences(keys)}
    fields = [list_fields(key) for key in keys]
    columns = {name: column or _write_column([each.get(name) for each in fields]) for name, column in columns.items()}
    return [join_settings({name: column[i] for name, column in columns.items()}) for i in range(len(keys))]


def join_settings(settings: Mapping[str, str]) -> str:
    """`preresnet20, lr 0.1`: the names of networks, data and recipes stand for themselves."""
    return ", ".join(value if name in _FIRST else f"{name} {value}" for name, value in settings.items())


def label_groups(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """What to write after the names of network, data and recipe of each group of a file of results, if anything."""
    if len(groups) == 1:
        return [""]
    keys = [RunKey.from_dict({**group, "seed": 0}) for group in groups]
    columns = {name: column for name, column in summarize_differences(keys).items() if name not in _FIRST}
    names = (join_settings({name: column[i] for name, column in columns.items()}) for i in range(len(groups)))
    return [f", {name}" if name else "" for name in names]


# --- values as text ---------------------------------------------------------------------------


def write_value(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ",".join(map(write_value, value))
        case "" | None:
            return "none"
    return str(value)


def shorten(text: str, longest: int = _LONGEST) -> str:
    """The beginning and the end of a long text."""
    end = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[: longest - 3 - end]}...{text[-end:]}"


def _write_column(values: Sequence[Any]) -> tuple[str, ...]:
    """Short texts, as long as they tell the values apart."""
    texts = tuple(map(write_value, values))
    short = tuple(map(shorten, texts))
    return short if len(set(short)) == len(set(texts)) else texts


def sort_naturally(text: str) -> list[tuple[int, float, str]]:
    """A key that puts 9 before 10, also inside words."""
    parts = re.split(r"(-?\d+\.?\d*(?:e-?\d+)?)", text)
    return [(0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts) if part]
