"""Trainings that `resnets results` collected, by other recipes than the papers'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resnets.chain import parse_network
from resnets.differences import label_groups
from resnets.papers.numbers import quote_paper
from resnets.report.page import provenance, tables
from resnets.report.page.html import Html, tag
from resnets.report.page.inputs import Inputs
from resnets.report.page.numbers import write_plus_minus
from resnets.runs import Summary


def build_section(inputs: Inputs) -> Html:
    rows = []
    for title, _, variant, result in list_variants(inputs):
        spec, data = parse_network(result["network"]), result["data"]["name"]
        errors = tuple(run["result"]["test"]["error"] for run in result["runs"])
        number = provenance.build_button(title, write_plus_minus(str(Summary(errors))))
        seeds = tag("small", f"{len(errors)} seed{'s' * (len(errors) != 1)}")
        cells = (data, tag("code", result["recipe"]["name"]), number + seeds, quote_paper(spec, data) or "-")
        rows.append(tag("tr", tag("th", spec.name + variant, scope="row"), *(tag("td", cell) for cell in cells)))
    header: list[Any] = ["network", "data", "recipe", "test error, ours", "the papers'"]
    return tables.build_table("Trainings by other recipes", header, rows) if rows else Html()


def list_variants(inputs: Inputs) -> Iterator[tuple[str, Path, str, dict[str, Any]]]:
    """Every variant: the title of its box, its file, how it differs, its results."""
    for path, groups in inputs.trainings.items():
        for i, (result, variant) in enumerate(zip(groups, label_groups(groups), strict=True), 1):
            yield path.stem if len(groups) == 1 else f"{path.stem}, variant {i}", path, variant, result
