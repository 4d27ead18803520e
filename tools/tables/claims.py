"""What README and the home page show: three claims from results/, a unit, and v2's Table 1 as bars."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Any

from resnets.describe.drawing import Kind, draw_kinds, picture
from resnets.experiments.comparison import NOT_RUN, correlate, write_error
from resnets.experiments.outcomes import Outcomes
from resnets.papers.rows import Cell
from resnets.papers.tables import EXPERIMENTS
from resnets.report.pictures import new_figure
from resnets.zoo import spec_of
from tools.tables.performance import NOT_YET
from tools.tables.pictures import OTHERS, OURS, Bar, draw_bars, draw_themes
from tools.tables.ratios import Line, Spread, compute_ratio, read_lines, read_values
from tools.tables.reproduced import PUBLISHED, describe_missing, find_budgets, write_scaled
from tools.tables.themes import write_picture

TABLE1 = EXPERIMENTS["table1"]
LIMIT = 20  # the papers say "fails" of a test error above this, in per cent
GIB = 2**30
DEEPEST = "preresnet1001, batch 128"
MODES = {"timm": "timm", "lean": "ours, mode lean", "min": "ours, mode min"}


def read_speeds(results: Path) -> dict[str, Spread]:
    """How many times as fast as timm a training step is, by network."""
    lines = read_lines(results, "step")
    found = {name: compute_ratio(line, "timm", "fast") for name, line in lines.items()}
    return {name.partition(",")[0]: spread for name, spread in found.items() if spread}


def read_peaks(results: Path) -> dict[str, float]:
    """The peak memory of a training step with 1001 layers, in GiB, by contestant."""
    line = read_lines(results, "memory").get(DEEPEST)
    peaks = {who: read_values(line, who, "peak") for who in MODES} if line else {}
    return {who: Spread.of(peak).median / GIB for who, peak in peaks.items() if peak}


def write_claims(results: Path) -> str:
    """Three sentences with what was measured."""
    return "\n".join([_claim_speed(results), _claim_memory(results), _claim_tables(results)])


def _claim_speed(results: Path) -> str:
    speeds = read_speeds(results)
    if not speeds:
        return f"- **Fast training**. {NOT_YET}"
    medians = sorted(spread.median for spread in speeds.values())
    cores = _name_machine(read_lines(results, "step"))
    return (
        f"- **{medians[0]:.1f} to {medians[-1]:.1f} times as fast as timm** in training {len(speeds)} networks "
        f"of 20 to 1001 layers on {cores} ([every ratio](docs/performance.md))."
    )


def _claim_memory(results: Path) -> str:
    peaks = read_peaks(results)
    if not {"timm", "min"} <= peaks.keys():
        return f"- **Little memory**. {NOT_YET}"
    speed = compute_ratio(read_lines(results, "memory")[DEEPEST], "timm", "min")
    longer = f" and {speed.median:.1f} times as long" if speed else ""
    return (
        f"- **1001 layers in {peaks['min']:.1f} GiB** at batch 128, where timm takes {peaks['timm']:.1f} GiB{longer} "
        "([memory](docs/performance.md#memory-in-training))."
    )


def _claim_tables(results: Path) -> str:
    rows = {row for experiment in EXPERIMENTS.values() for row in experiment.rows}
    there = {row for row in rows if any((results / budget / f"{row.name}.json").exists() for budget in PUBLISHED)}
    return (
        f"- **Every table of the papers is one command**, as `resnets reproduce table1`: {len(EXPERIMENTS)} tables and "
        f"figures with {len(rows)} rows, {len(there)} of which have been run so far "
        "([what was scaled](docs/reproduce.md))."
    )


def _name_machine(lines: dict[str, Line]) -> str:
    machine = next(iter(lines.values()))["machine"]
    return f"{machine['cores']} cores of an {machine['cpu']}"


def write_chart(results: Path) -> str:
    speeds, peaks = read_speeds(results), read_peaks(results)
    if not speeds or not peaks:
        return NOT_YET
    fast = ", ".join(f"{name} {spread.median:.2f}" for name, spread in speeds.items())
    lean = ", ".join(f"{MODES[who]} {gib:.1f} GiB" for who, gib in peaks.items())
    return write_picture(
        "results/bench/claims", f"Training speed, timm = 1: {fast}. Peak memory with 1001 layers: {lean}."
    )


def draw(results: Path) -> None:
    """Draw results/bench/claims.svg and results/table1.svg, if they were measured."""
    speeds, peaks = read_speeds(results), read_peaks(results)
    if speeds and peaks:
        draw_themes(results / "bench" / "claims", partial(_build_chart, speeds, peaks))
    if found := find_budgets(TABLE1, results):
        draw_themes(results / "table1", partial(_build_table, *next(iter(found.items()))))


def _build_chart(speeds: dict[str, Spread], peaks: dict[str, float]) -> Any:
    figure = new_figure("the claims", (8, 2.4))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    bars = [Bar(name, spread.median, f"{spread.median:.2f}", OURS) for name, spread in speeds.items()]
    draw_bars(left, "speed of training; the grey line is timm's", bars)
    left.axvline(1, color=OTHERS, linewidth=1.5)
    bars = [Bar(MODES[w], gib, f"{gib:.1f} GiB", OTHERS if w == "timm" else OURS) for w, gib in peaks.items()]
    draw_bars(right, "memory for training 1001 layers", bars)
    return figure


def write_unit(results: Path) -> str:
    """The most frequent unit of both papers' networks with 110 layers, drawn as `resnets info` draws it."""
    kinds = []
    for name in ("resnet110", "preresnet110"):
        unit = list(spec_of(name).units())[1]
        kinds.append(Kind((unit.index,), picture(unit)))
    titles = f"{'v1: resnet110':<25}v2: preresnet110"
    drawn = draw_kinds(kinds).splitlines()
    return "\n".join(["```text", titles, *drawn[1:], "```"])


# --- Table 1 ----------------------------------------------------------------------------------


def write_bars(results: Path) -> str:
    """Table 1 as a picture, and in words what was scaled."""
    if not (found := find_budgets(TABLE1, results)):
        return describe_missing(TABLE1)
    budget, outcomes = next(iter(found.items()))
    rows = "; ".join(f"{cell.label}: {cell.value}, {_make_bar(cell, outcomes).text}" for cell in TABLE1.cells)
    shown = write_picture("results/table1", f"{TABLE1.where}, the paper's error and ours. {rows}")
    orders = " ".join(f"{str(found).capitalize()}." for found in correlate(TABLE1, outcomes))
    notes = f"{orders} Budget `{budget}`; scaled: {write_scaled(TABLE1, outcomes)}.".strip()
    return f"{shown}\n\n{notes}"


def _build_table(budget: str, outcomes: Outcomes) -> Any:
    """A bar for each row: on the left the paper's error, on the right ours. Rows that fail are pale."""
    figure = new_figure(TABLE1.where, (8, 3.6))
    left, right = figure.subplots(1, 2, sharey=True)
    values = [(cell.label, cell.value) for cell in TABLE1.cells]
    paper = [Bar(name, LIMIT if v.fails else v.error or 0, str(v), OTHERS, v.fails) for name, v in values]
    draw_bars(left, "the paper: test error, %", paper)
    draw_bars(right, f"ours, budget {budget}: test error, %", [_make_bar(cell, outcomes) for cell in TABLE1.cells])
    return figure


def _make_bar(cell: Cell, outcomes: Outcomes) -> Bar:
    one = outcomes.find(cell)
    if one is None:
        return Bar(cell.label, 0, NOT_RUN, OURS)
    errors = [min(error, 100) for error in one.values("error")]  # a run that diverged has an infinite one
    return Bar(cell.label, statistics.median(errors), write_error(one), OURS, one.fails)


TABLES = {"table1-chart": write_bars, "claims": write_claims, "claims-chart": write_chart, "unit": write_unit}
