"""`resnets models` and `resnets info`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resnets.chain import Chain, NetworkSpec
from resnets.cli.chain_output import format_map, format_sides, print_chain
from resnets.cli.options import NETWORK_FIELDS, Command
from resnets.detector_spec import DETECTORS, VGG, DetectorSpec, detector_of, is_detector
from resnets.errors import UserError, one_of
from resnets.options import Options, fields_of, option, parse_size
from resnets.other_systems import OTHERS
from resnets.spec import Spec
from resnets.text import columns, count, multiply_adds, print_json, print_lines, print_table, shows
from resnets.zoo import FAMILIES, NETWORKS, NetworkOptions, family_of, list_models, spec_of

if TYPE_CHECKING:
    from resnets.cli.parser import Commands
    from resnets.describe.network import Description

_BATCH = 128  # the papers' on CIFAR


def models(commands: Commands) -> None:
    command = Command(
        commands,
        "models",
        help="list the named networks",
        description="List the named networks with their cost, and those that come trained inside the package. "
        "--all adds the other systems of the papers' tables, which a pattern finds too.",
    )
    command.add("pattern", nargs="?", help="a shell pattern: 'preresnet*'", metavar="PATTERN")
    command.add("--all", action="store_true", help="also the other systems of the papers' tables")
    command.add("--pretrained", action="store_true", help="trained networks by name, with their errors")
    command.add("--json", action="store_true", help="print JSON")

    def run(args: argparse.Namespace) -> None:
        if args.pretrained:
            return _print_pretrained(args.pattern, args.json)
        _print_models(args.pattern, args.json, args.all)

    command.run(run)


def _print_pretrained(pattern: str | None, as_json: bool) -> None:
    from resnets.weights.pretrained import list_pretrained, weights_dir
    from resnets.weights.public import ADDRESS, PUBLIC

    # A name of a network stands for all of its weights.
    rows = list_pretrained(pattern) or list_pretrained(f"{pattern}.*")
    if not rows:
        raise one_of("pretrained network", pattern, [row["name"] for row in list_pretrained()])
    if as_json:
        return print_json(rows)
    cells = []
    for row in rows:
        errors = [f"{value:.2f}" if value is not None else "" for value in (row["error"], row["top5"])]
        place = "package" if row["name"] not in PUBLIC else "cache" if row["file"] else f"{row['mebibytes']} MiB"
        cells.append([row["name"], *errors, f"{row['crop']}@{row['resize']}", row["publisher"], place])
    header = ("name", "error %", "top-5 %", "crop", "publisher", "where")
    print_table(header, cells, right=("error %", "top-5 %", "crop", "where"))
    licences = dict.fromkeys(f"{row['publisher']} {row['licence']}" for row in rows)
    print_lines(
        "",
        "Names that end in in1k: ImageNet, with the errors that the publishers state for one centre crop (crop@shorter "
        "side) of the validation images; we did not measure them. Those on CIFAR-10 are ours.",
        f"Licences, as the publishers state them: {', '.join(licences)}. The data have their own terms.",
        f"Weights that are not here are fetched when they are first used, into {weights_dir()}; {ADDRESS} can name a "
        "mirror.",
    )


def _print_models(pattern: str | None, as_json: bool, every: bool) -> None:
    names = list_models("*" if every and pattern is None else pattern)
    if not names:
        raise one_of("network", pattern, {**NETWORKS, **OTHERS})
    from resnets.analysis.complexity import complexity
    from resnets.weights import pretrained

    trained = {name: pretrained.of(name) for name in names}
    rows: list[dict[str, Any]] = []
    for spec in map(spec_of, names):
        cost = complexity(spec)
        rows.append(
            {
                "name": spec.name,
                "family": family_of(spec.name),
                "block": spec.block if isinstance(spec, Spec) else None,
                "units": sum(spec.blocks) if isinstance(spec, Spec) else None,
                "layers": spec.depth,
                "parameters": cost.parameters,
                "multiply_adds": cost.multiply_adds,
                "input": list(cost.input),
            }
        )
    if as_json:
        return print_json([{**row, "pretrained": trained[row["name"]]} for row in rows])
    written: dict[str, Callable[[Any], str]] = {
        "block": lambda block: block or "",
        "units": lambda units: "" if units is None else count(units),
        "layers": count,
        "parameters": count,
        "multiply_adds": multiply_adds,
        "input": format_sides,
    }
    families = [family for family in FAMILIES if any(row["family"] == family for row in rows)]
    together = "others" not in families  # which have no units
    for family in families[:1] if together else families:
        of_family = rows if together else [row for row in rows if row["family"] == family]
        hidden = ("family",) if family != "others" else ("family", "block", "units")
        kept = [key for key in of_family[0] if key not in hidden]
        if len(families) > 1 and not together:
            print_lines(*([""] if family != families[0] else []), f"{family}: {FAMILIES[family]}", "")
        header = [key.replace("multiply_adds", "multiply-adds") for key in kept]
        cells = [[written.get(key, str)(row[key]) for key in kept] for row in of_family]
        print_table(header, cells, right=[key for key in header if key not in ("name", "block")])
    inside = pretrained.index()
    shipped = ", ".join(name for some in trained.values() for name in some if name in inside)
    print_lines()
    found = [name for name, inner in DETECTORS.items() if inner in names]
    if pattern is None and VGG not in found:  # whose network is listed only with the other systems
        found.append(VGG)
    if found:
        print_lines(f"detectors: {', '.join(found)}")
    print_lines(f"trained, in the package: {shipped or 'none of these'}")
    if public := [name for some in trained.values() for name in some if name not in inside]:
        print_lines(f"trained by others, fetched by name: {len(public)}; resnets models --pretrained lists them")
    if pattern is None and not every:
        print_lines(f"{len(OTHERS)} other systems of the papers' tables: resnets models --all")


@dataclass(frozen=True)
class InfoOptions(Options):
    """What `info` shows besides the network."""

    size: object = option(None, "of the images: 320, or 320x256 (height x width)", parse=parse_size)
    weights: str | None = option(
        None, "load this file or pretrained name into the network and say what it is", metavar="WEIGHTS"
    )
    source: str | None = option(None, "library whose weights the file must hold", metavar="LIBRARY")
    memory: bool = option(False, "show how much memory training takes in each mode")
    engine: bool = option(False, "show how it would be trained here, and why")
    batch: int | None = option(None, "images in a batch, for --memory and --engine", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source and not self.weights:
            raise UserError("--source says whose weights are in a file; name the file with --weights.")
        if self.batch is not None and not (self.engine or self.memory):
            raise UserError("--batch goes with --memory or --engine.")


def info(commands: Commands) -> None:
    command = Command(
        commands,
        "info",
        InfoOptions,
        NetworkOptions,
        help="describe a network: layers, cost, switches, a drawing of its unit",
        description="Describe a network: its layers, its cost, every switch, and a drawing of its unit.",
        usage="%(prog)s [options] NETWORK",
    )
    command.add("network", help="a name from 'resnets models', a weights file, a run", metavar="NETWORK")
    command.add("--json", action="store_true", help="print JSON")
    command.add_options(common=(*fields_of(InfoOptions), *NETWORK_FIELDS))

    def run(args: argparse.Namespace) -> None:
        given, changes = command.read(args)
        _print_info(args.network, changes, InfoOptions(**given), args.json)

    command.run(run)


def _print_detector(spec: DetectorSpec, as_json: bool) -> None:
    from resnets.describe.detector import SIZE, describe_detector

    found = describe_detector(spec)
    if as_json:
        return print_json(found.to_dict())
    context = ", with the whole picture as context" if spec.context else ""
    print_lines(f"{spec.name}: Faster R-CNN, {spec.num_classes} classes, {found.parameters:,} parameters{context}", "")
    rows = [(part, what, multiply_adds(cost)) for part, what, cost in found.parts]
    print_table(("part", "what", "multiply-adds"), rows, right=("multiply-adds",))
    print_lines(
        "",
        f"A picture of {SIZE[0]}x{SIZE[1]}: {multiply_adds(found.step)} multiply-adds for a training step of 128 "
        f"regions, {multiply_adds(found.test)} for a test of 300 proposals.",
        f"The 128 regions of a step keep {found.head >> 20:,} MiB; --memory lean keeps 32 of them at a time, min 8.",
    )


def _print_info(network: str, changes: dict[str, Any], options: InfoOptions, as_json: bool) -> None:
    if is_detector(network):
        return _print_detector(detector_of(network, network=changes), as_json)
    if os.path.exists(network):
        from resnets.weights.detectors import find_file, open_detector

        if find_file(network) is not None:
            return _print_detector(open_detector(network).spec, as_json)
    spec = _find_spec(network, changes)
    from resnets.describe.chain import describe_chain
    from resnets.describe.network import Description, describe
    from resnets.describe.training import Training

    size: Any = options.size
    description = describe_chain(spec, size) if isinstance(spec, Chain) else describe(spec, size)
    report = _load(spec, options.weights, options.source or "auto") if options.weights else None
    training = Training(spec, options.batch or _BATCH, size)
    if as_json:
        data = description.to_dict()
        if report is not None:
            data["weights"] = {"file": options.weights, "report": report}
        if options.memory:
            data["memory"] = training.memory()
        if options.engine:
            data["engine"] = training.engine()
        return print_json(data)
    if not isinstance(description, Description):
        print_chain(description)
    else:
        _print(description)
    if report is not None:
        print_lines("", report)
    if options.memory:
        _print_memory(training.batch, training.memory())
    if options.engine:
        print_lines("", "How it is trained here:", "")
        print_table(("what", "value", "why"), [list(line.values()) for line in training.engine()])


def _print_memory(batch: int, found: dict[str, Any]) -> None:
    from resnets.engine import MODES

    room = found["available"]
    there = "available memory unknown" if room is None else f"{room >> 20:,} are available"
    print_lines("", f"Memory of training with batches of {batch}, in MiB; {there}:", "")
    header = ("mode", "peak", "process", "weights", "maps", "", "what is kept")
    rows = []
    for mode, row in found["modes"].items():
        numbers = [f"{row[key] >> 20:,}" for key in ("total", "base", "weights", "maps")]
        word = "auto" if mode == found["auto"] else "fits" if row["fits"] else "too much"
        rows.append([mode, *numbers, word, MODES[mode]])
    print_table(header, rows, right=header[1:5])


def _find_spec(network: str, changes: dict[str, Any]) -> NetworkSpec:
    """The spec of a named network, without torch; of weights through the resolver of all commands."""
    if network in NETWORKS or network in OTHERS:
        return spec_of(network, **changes)
    from resnets.weights.models import find_spec

    return find_spec(network, changes)


def _load(spec: NetworkSpec, weights: str, source: str) -> str:
    from resnets.nn import build
    from resnets.weights.networks import load_weights
    from resnets.weights.pretrained import file_of, is_name

    path = file_of(weights) if is_name(weights) and not os.path.exists(weights) else weights
    return str(load_weights(build(spec), path, source=source))


def _print(description: Description) -> None:
    spec, cost = description.spec, description.cost
    units = f"{count(sum(spec.blocks))} {spec.block} units"
    print_lines(f"{spec.name}: {count(spec.depth)} layers, {units}, {spec.num_classes} classes")
    if changes := description.changed:
        print_lines(f"changed from {spec.name}: {', '.join(f'{field}={value}' for field, value in changes.items())}")
    print_lines(
        f"{count(cost.parameters)} parameters, {multiply_adds(cost.multiply_adds)} multiply-adds "
        f"on images of {format_map(cost.input)} (at least {format_sides((0, spec.min_size, spec.min_size))})"
    )
    print_lines()
    header = ("part", "output", "kernels, filters", "halves the map", "parameters", "multiply-adds")
    rows = [
        (r.name, format_map(r.output), r.layers, r.stride, count(r.parameters), multiply_adds(r.multiply_adds))
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
    from resnets.describe.drawing import draw_kinds

    drawn = draw_kinds(description.kinds, columns())
    if not shows(drawn):
        drawn = draw_kinds(description.kinds, columns(), ascii_only=True)
    print_lines(*drawn.split("\n"))


def _value(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:g}"
