"""The tables of docs/performance.md, from results/bench/*.json: ratios of one run, never times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.tables import targets as aims
from tools.tables.ratios import Line, Spread, lines, ratio, reason, values
from tools.tables.records import EPOCH

GIB, MIB = 2**30, 2**20
NOT_YET = "Not measured yet: `make bench` measures it, and `make tables` puts it here."
LABELS = {
    "fast": "ours, fast",
    "lean": "ours, lean",
    "min": "ours, min",
    "plain": "ours, plain PyTorch",
    "frozen": "ours, frozen",
    "onnxruntime": "ours, ONNX Runtime",
    "openvino": "ours, OpenVINO",
    "only PIL": "ours, decoding by PIL",
    "fast-jpeg": "ours, with simplejpeg (removed since)",
}
Table = tuple[list[str], list[list[str]]]  # header, rows


def label(contestant: str) -> str:
    return LABELS.get(contestant, contestant)


def _cell(spread: Spread | None) -> str:
    return str(spread) if spread else "-"


def _contestants(section: Mapping[str, Line]) -> list[str]:
    """Everyone in the section, in the order of the lines."""
    return list(dict.fromkeys(name for line in section.values() for name in line["contestants"]))


def speeds(section: Mapping[str, Line]) -> Table:
    """A line a row, a contestant a column: how many times as fast as the first."""
    base, *others = _contestants(section)
    others = [name for name in others if name != "roofline"]
    rows = [[name, *(_cell(ratio(line, base, other)) for other in others)] for name, line in section.items()]
    return [f"times as fast as {base}", *map(label, others)], rows


def steps(section: Mapping[str, Line]) -> Table:
    """Speeds, and beside them the share that the convolutions alone have of a step."""
    header, rows = speeds(section)
    shared = [name for name in ("timm", "plain", "fast") if name in _contestants(section)]
    for row, line in zip(rows, section.values(), strict=True):
        # The roofline's time over the contestant's, so the roofline is the base.
        row += [_cell(ratio(line, "roofline", name)) for name in shared]
    return header + [f"convolutions' share, {label(name)}" for name in shared], rows


def memory(section: Mapping[str, Line]) -> Table:
    """A contestant a row: its peak, the forecast's share of it, and what it gains over timm in memory and in time."""
    rows = []
    for name, line in section.items():
        for who in line["contestants"]:
            peak = values(line, who, "peak")
            gib = Spread.of([p / GIB for p in peak]) if peak else None
            said = values(line, who, "foretold")
            told = said and peak and len(said) == len(peak)  # each round in a process of its own
            share = Spread.of([s / p for s, p in zip(said, peak, strict=True)]) if told else None  # type: ignore[arg-type]
            gains = [ratio(line, "timm", who, key) for key in ("peak", "seconds")]
            rows.append([name, label(who), *map(_cell, (gib, share, *gains))])
    header = ["network", "how", "peak, GiB", "foretold, share of it", "times less memory than timm"]
    return [*header, "times as fast as timm"], rows


def depth(section: Mapping[str, Line]) -> Table:
    """Time a layer against the shallowest net of the same kind of unit, and the peak memory of each mode."""
    modes = _contestants(section)
    shallowest: dict[tuple[str, str], Line] = {}
    rows = []
    for name, line in section.items():
        first = shallowest.setdefault((line["unit"], line["order"]), line)
        cells = [name, str(line["layers"]), line["unit"]]
        cells += [_relative(line, first, mode, "seconds") for mode in modes]
        cells += [_relative(line, first, modes[0], key) for key in ("build", "first")]
        for mode in modes:
            peak = values(line, mode, "peak")
            cells.append(f"{Spread.of(peak).median / GIB:.2f}" if peak else "-")
        rows.append(cells)
    header = ["network", "layers", "unit", *(f"a step's time a layer, {mode}" for mode in modes)]
    header += ["time to build, a layer", "first step, a layer", *(f"peak GiB, {mode}" for mode in modes)]
    return header, rows


def _relative(line: Line, first: Line, mode: str, key: str) -> str:
    """A layer's part of a value, over that in the shallowest net; the lines were not measured in one round."""
    here, there = values(line, mode, key), values(first, mode, key)
    if not here or not there:
        return "-"
    layers = line["layers"] / first["layers"]
    return f"{Spread.of(here).median / Spread.of(there).median / layers:.2f}"


def absences(section: Mapping[str, Line]) -> list[str]:
    """Why a place in the table is empty: a sentence for each reason."""
    where: dict[str, list[str]] = {}
    for name, line in section.items():
        for who in line["contestants"]:
            if why := reason(line, who):
                where.setdefault(f"{label(who)}: {why}", []).append(name)
    return [f"{why} ({'; '.join(names)})." for why, names in where.items()]


SECTIONS: dict[str, Callable[[Mapping[str, Line]], Table]] = {
    "step": steps,
    "memory": memory,
    "large": memory,
    "inference": speeds,
    "data": speeds,
    "jpeg": speeds,
    "startup": speeds,
    "depth": depth,
    "race": speeds,
}


# --- as Markdown ------------------------------------------------------------------------------


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def origin(section: Mapping[str, Line]) -> str:
    """Where the numbers of a table come from; lines of different runs name them all."""

    def all_of(read: Callable[[Line], Any]) -> str:
        return ", ".join(dict.fromkeys(str(read(line)) for line in section.values()))

    parts = [
        f"rounds: {all_of(lambda line: line['rounds'])}",
        all_of(lambda line: f"{line['machine']['cpu']} with {line['machine']['cores']} cores"),
        *(
            f"{name} {found}"
            for name in ("torch", "timm", "torchvision", "keras", "onnxruntime", "openvino")
            if (found := all_of(lambda line, name=name: line["versions"].get(name) or "")).strip(", ")  # type: ignore[misc]
        ),
        f"commit {all_of(lambda line: (line['commit'] or 'unknown')[:10])}",
        all_of(lambda line: line["began"][:10]),
    ]
    return f"*{'; '.join(parts)}.*"


def _page(name: str) -> Callable[[Path], str]:
    def page(results: Path) -> str:
        section = lines(results, name)
        if not section:
            return NOT_YET
        return "\n\n".join([markdown(*SECTIONS[name](section)), *absences(section), origin(section)])

    return page


def _aims(results: Path) -> str:
    return markdown(["what", "at least", "then", "measured", "met"], aims.rows(results))


def _epoch(results: Path) -> str:
    """Memory along an epoch of files: `benchmarks.epoch`."""
    path = results / "bench" / "epoch.json"
    if not path.exists():
        return "Not measured yet: `python -m benchmarks.epoch` measures it."
    told = EPOCH.read(path)
    _, indexed, *along = told["points"]
    rows = [
        [f"{point['images']:,}", *(f"{size / MIB:.0f}" for size in (point["training"], sum(point["decoders"])))]
        for point in (indexed, *along)
    ]
    header = ["images seen", "the process that trains, MiB", f"decoders ({told['decoders']}), MiB"]
    where = f"*{told['files']:,} files; commit {(told['commit'] or 'unknown')[:10]}; {told['began'][:10]}.*"
    return f"{markdown(header, rows)}\n\n{where}"


TABLES: dict[str, Callable[[Path], str]] = {
    "bench-aims": _aims,
    "bench-epoch": _epoch,
    **{f"bench-{name}": _page(name) for name in SECTIONS},
}
