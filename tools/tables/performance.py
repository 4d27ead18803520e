"""The tables of docs/performance.md, from results/bench/*.json: ratios of one run, never times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.tables import targets as aims
from tools.tables.ratios import Line, Spread, compute_ratio, read_lines, read_reason, read_values
from tools.tables.records import EPOCH

GIB, MIB = 2**30, 2**20
NOT_YET = "Not measured yet: `make bench` measures it, and `make tables` puts it here."
ON_REQUEST = {
    "race94": "Not measured yet: `AIRBENCH=airbench94_muon.py python -m benchmarks --only race94` and `make tables`."
}
LABELS = {
    "fast": "ours, fast",
    "lean": "ours, lean",
    "min": "ours, min",
    "plain": "ours, plain PyTorch",
    "frozen": "ours, frozen",
    "onnxruntime": "ours, ONNX Runtime",
    "openvino": "ours, OpenVINO",
    "fast, alone": "ours, alone",
    "fast, busy": "ours, beside a busy process",
    "plain, alone": "plain PyTorch, alone",
    "plain, busy": "plain PyTorch, beside a busy process",
    "only PIL": "ours, decoding by PIL",
    "airbench94_muon": "airbench94_muon, six views of each test image",
    "cifar-94": "ours, cifar-94, six views of each test image",
    "fast-jpeg": "ours, with simplejpeg (removed since)",
}
Table = tuple[list[str], list[list[str]]]  # header, rows


def label(contestant: str) -> str:
    return LABELS.get(contestant, contestant)


def _write_cell(spread: Spread | None) -> str:
    return str(spread) if spread else "-"


def _list_contestants(section: Mapping[str, Line]) -> list[str]:
    """All contestants of a section, in the order of the lines."""
    return list(dict.fromkeys(name for line in section.values() for name in line["contestants"]))


def tabulate_speeds(section: Mapping[str, Line]) -> Table:
    """A row for each line, a column for each contestant: how many times as fast as the first."""
    base, *others = _list_contestants(section)
    others = [name for name in others if name not in ("roofline", "peak")]
    rows = [
        [name, *(_write_cell(compute_ratio(line, base, other)) for other in others)] for name, line in section.items()
    ]
    return [f"times as fast as {label(base).removeprefix('ours, ')}", *map(label, others)], rows


def tabulate_trainings(section: Mapping[str, Line]) -> Table:
    """A row for each contestant: the test error at its end, and how many times as fast as the first it got there."""
    rows = []
    for line in section.values():
        base = next(iter(line["contestants"]))
        for who in line["contestants"]:
            errors = read_values(line, who, "error")
            cells = Spread.of(errors) if errors else None, compute_ratio(line, base, who)
            rows.append([label(who), *map(_write_cell, cells)])
    return ["recipe", "test error with its own views, %", "times as fast as the first"], rows


def tabulate_steps(section: Mapping[str, Line]) -> Table:
    """Speeds, and the share of a step that the convolutions alone take."""
    header, rows = tabulate_speeds(section)
    shared = [name for name in ("timm", "plain", "fast") if name in _list_contestants(section)]
    for row, line in zip(rows, section.values(), strict=True):
        # The roofline's time over the contestant's, so the roofline is the base.
        row += [_write_cell(compute_ratio(line, "roofline", name)) for name in shared]
        row.append(_write_cell(_compute_share_of_peak(line)))
    return [
        *header,
        *(f"convolutions' share, {label(name)}" for name in shared),
        "share of the FMA peak, ours, fast",
    ], rows


def _compute_share_of_peak(line: Line) -> Spread | None:
    """The multiply-adds that our kernels execute in a second, over those of a loop that does nothing else."""
    count, ratio = line.get("multiply_adds"), compute_ratio(line, "peak", "fast")
    return None if not count or not ratio else ratio.scale(count["fast"] / count["peak"])


def tabulate_memory(section: Mapping[str, Line]) -> Table:
    """A row for each contestant: its peak, the estimate's share of it, and its gain over timm in memory and time."""
    rows = []
    for name, line in section.items():
        for who in line["contestants"]:
            peak = read_values(line, who, "peak")
            gib = Spread.of([p / GIB for p in peak]) if peak else None
            estimate = read_values(line, who, "foretold")
            share = None
            if estimate and peak and len(estimate) == len(peak):  # each round in its own process
                share = Spread.of([e / p for e, p in zip(estimate, peak, strict=True)])
            gains = [compute_ratio(line, "timm", who, key) for key in ("peak", "seconds")]
            rows.append([name, label(who), *map(_write_cell, (gib, share, *gains))])
    header = ["network", "how", "peak, GiB", "estimate, share of it", "times less memory than timm"]
    return [*header, "times as fast as timm"], rows


def tabulate_depth(section: Mapping[str, Line]) -> Table:
    """Time a layer against the shallowest net of the same kind of unit, and the peak memory of each mode."""
    modes = _list_contestants(section)
    shallowest: dict[tuple[str, str], Line] = {}
    rows = []
    for name, line in section.items():
        first = shallowest.setdefault((line["unit"], line["order"]), line)
        cells = [name, str(line["layers"]), line["unit"]]
        cells += [_compare_layers(line, first, mode, "seconds") for mode in modes]
        cells += [_compare_layers(line, first, modes[0], key) for key in ("build", "first")]
        for mode in modes:
            peak = read_values(line, mode, "peak")
            cells.append(f"{Spread.of(peak).median / GIB:.2f}" if peak else "-")
        rows.append(cells)
    header = ["network", "layers", "unit", *(f"a step's time a layer, {mode}" for mode in modes)]
    header += ["time to build, a layer", "first step, a layer", *(f"peak GiB, {mode}" for mode in modes)]
    return header, rows


def _compare_layers(line: Line, first: Line, mode: str, key: str) -> str:
    """The value divided by the layers, relative to the shallowest net; by medians, as the rounds are not the same."""
    here, there = read_values(line, mode, key), read_values(first, mode, key)
    if not here or not there:
        return "-"
    layers = line["layers"] / first["layers"]
    return f"{Spread.of(here).median / Spread.of(there).median / layers:.2f}"


def explain_gaps(section: Mapping[str, Line]) -> list[str]:
    """Why cells of the table are empty: a sentence for each reason."""
    where: dict[str, list[str]] = {}
    for name, line in section.items():
        for who in line["contestants"]:
            if why := read_reason(line, who):
                where.setdefault(f"{label(who)}: {why}", []).append(name)
    return [f"{why} ({'; '.join(names)})." for why, names in where.items()]


SECTIONS: dict[str, Callable[[Mapping[str, Line]], Table]] = {
    "step": tabulate_steps,
    "memory": tabulate_memory,
    "large": tabulate_memory,
    "inference": tabulate_speeds,
    "latency": tabulate_speeds,
    "busy": tabulate_speeds,
    "detection": tabulate_speeds,
    "data": tabulate_speeds,
    "jpeg": tabulate_speeds,
    "startup": tabulate_speeds,
    "first": tabulate_speeds,
    "jobs": tabulate_speeds,
    "depth": tabulate_depth,
    "race": tabulate_speeds,
    "race94": tabulate_trainings,
}


# --- as Markdown ------------------------------------------------------------------------------


def write_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def describe_origin(section: Mapping[str, Line]) -> str:
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


def _make_page(name: str) -> Callable[[Path], str]:
    def page(results: Path) -> str:
        section = read_lines(results, name)
        if not section:
            return ON_REQUEST.get(name, NOT_YET)
        return "\n\n".join([write_markdown(*SECTIONS[name](section)), *explain_gaps(section), describe_origin(section)])

    return page


def _write_aims(results: Path) -> str:
    return write_markdown(["what", "at least", "then", "measured", "met"], aims.list_rows(results))


def _write_epoch(results: Path) -> str:
    """Memory along an epoch of files: `benchmarks.epoch`."""
    path = results / "bench" / "epoch.json"
    if not path.exists():
        return "Not measured yet: `python -m benchmarks.epoch` measures it."
    record = EPOCH.read(path)
    _, indexed, *along = record["points"]
    rows = [
        [f"{point['images']:,}", *(f"{size / MIB:.0f}" for size in (point["training"], sum(point["decoders"])))]
        for point in (indexed, *along)
    ]
    header = ["images seen", "the process that trains, MiB", f"decoders ({record['decoders']}), MiB"]
    where = f"*{record['files']:,} files; commit {(record['commit'] or 'unknown')[:10]}; {record['began'][:10]}.*"
    return f"{write_markdown(header, rows)}\n\n{where}"


TABLES: dict[str, Callable[[Path], str]] = {
    "bench-aims": _write_aims,
    "bench-epoch": _write_epoch,
    **{f"bench-{name}": _make_page(name) for name in SECTIONS},
}
