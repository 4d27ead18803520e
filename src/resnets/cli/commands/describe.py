"""What `resnets models` and `resnets info` print.

torch is imported once the request is known to make sense, so that a mistake is told at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from resnets.describe.drawing import draw_kinds
from resnets.errors import UserError, one_of
from resnets.spec import Spec
from resnets.text import columns, count, multiply_adds, print_json, print_lines, print_table, shows
from resnets.weights import pretrained
from resnets.zoo import NETWORKS, list_models, spec_of

_BATCH = 128  # the papers' on CIFAR

if TYPE_CHECKING:
    from resnets.describe.network import Description


def models(pattern: str = "*", *, as_json: bool = False) -> None:
    """The named networks that match a shell pattern, with their measured cost, and which of them come trained."""
    names = list_models(pattern)
    if not names:
        raise one_of("network", pattern, NETWORKS)
    from resnets.analysis.complexity import complexity

    trained = {name: pretrained.of(name) for name in names}
    rows: list[dict[str, Any]] = []
    for spec in map(spec_of, names):
        cost = complexity(spec)
        rows.append(
            {
                "name": spec.name,
                "block": spec.block,
                "units": sum(spec.blocks),
                "layers": spec.depth,
                "parameters": cost.parameters,
                "multiply_adds": cost.multiply_adds,
                "input": list(cost.input),
            }
        )
    if as_json:
        return print_json([{**row, "pretrained": trained[row["name"]]} for row in rows])
    header = ("name", "block", "units", "layers", "parameters", "multiply-adds", "input")
    written: dict[str, Callable[[Any], str]] = {
        "units": count,
        "layers": count,
        "parameters": count,
        "multiply_adds": multiply_adds,
        "input": _sides,
    }
    cells = [[written.get(key, str)(value) for key, value in row.items()] for row in rows]
    print_table(header, cells, right=header[2:])
    shipped = ", ".join(name for some in trained.values() for name in some)
    print_lines("", f"trained, in the package: {shipped or 'none of these'}")


def info(
    network: str,
    changes: dict[str, Any],
    *,
    size: int | tuple[int, int] | None = None,
    weights: str | None = None,
    source: str | None = None,
    engine: bool = False,
    memory: bool = False,
    batch: int | None = None,
    as_json: bool = False,
) -> None:
    """A network by name or in a weights file of ours, what is recognised in `weights`, and how it would be trained."""
    if source and not weights:
        raise UserError("--source says whose weights are in a file; name the file with --weights.")
    if batch is not None and not (engine or memory):
        raise UserError("--batch goes with --memory or --engine.")
    spec = _spec(network, changes)
    from resnets.describe.network import describe
    from resnets.describe.training import Training

    description = describe(spec, size)
    report = _load(spec, weights, source or "auto") if weights else None
    training = Training(spec, batch or _BATCH, size)
    if as_json:
        data = description.to_dict()
        if report is not None:
            data["weights"] = {"file": weights, "report": report}
        if memory:
            data["memory"] = training.memory()
        if engine:
            data["engine"] = training.engine()
        return print_json(data)
    _print(description)
    if report is not None:
        print_lines("", report)
    if memory:
        training.print_memory()
    if engine:
        training.print_engine()


def _spec(network: str, changes: dict[str, Any]) -> Spec:
    if network in NETWORKS or not (set(network) & set("./\\") or os.path.exists(network)):
        return spec_of(network, **changes)
    if changes:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in changes)
        raise UserError(f"{network} says itself what its network is; leave out {options}.")
    from resnets.weights.networks import read_spec
    from resnets.weights.pretrained import find_weights

    return read_spec(find_weights(network))


def _load(spec: Spec, path: str, source: str) -> str:
    from resnets.nn import build
    from resnets.weights.networks import load_weights

    return str(load_weights(build(spec), path, source=source))


def _print(description: Description) -> None:
    spec, cost = description.spec, description.cost
    units = f"{count(sum(spec.blocks))} {spec.block} units"
    print_lines(f"{spec.name}: {count(spec.depth)} layers, {units}, {spec.num_classes} classes")
    if changes := description.changed:
        print_lines(f"changed from {spec.name}: {', '.join(f'{field}={value}' for field, value in changes.items())}")
    print_lines(
        f"{count(cost.parameters)} parameters, {multiply_adds(cost.multiply_adds)} multiply-adds "
        f"on images of {_map(cost.input)} (at least {_sides((0, spec.min_size, spec.min_size))})"
    )
    print_lines()
    header = ("part", "output", "kernels, filters", "halves the map", "parameters", "multiply-adds")
    rows = [
        (r.name, _map(r.output), r.layers, r.stride, count(r.parameters), multiply_adds(r.multiply_adds))
        for r in description.rows
    ]
    print_table(header, rows, right=header[-2:])
    print_lines()
    print_table(("switch", "value", "meaning"), [(s.name, _value(s.value), s.meaning) for s in description.switches])
    print_lines()
    print_lines(
        "F, then f." if spec.shortcut.plain else "The shortcut h on the left, F on the right, f below the addition."
    )
    print_lines("Units count from 0, as in net.units; filters are those of the first unit named.")
    print_lines()
    drawn = draw_kinds(description.kinds, columns())
    if not shows(drawn):
        drawn = draw_kinds(description.kinds, columns(), ascii_only=True)
    print_lines(*drawn.split("\n"))


def _value(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:g}"


def _map(shape: tuple[int, int, int]) -> str:
    """`64 x 32x32`; channels alone where the map is one pixel."""
    return str(shape[0]) if shape[1:] == (1, 1) else f"{shape[0]} x {_sides(shape)}"


def _sides(shape: Any) -> str:
    return "x".join(map(str, shape[1:]))
