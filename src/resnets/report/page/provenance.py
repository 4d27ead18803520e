"""Show where numbers come from: a box for each result. A click on a number opens its box; in print all are open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from resnets.report.page.html import Html, join, tag

KEYS = ("command", "commit", "versions", "machine", "began")
_LATER = "responses_measured"  # in results whose responses were measured after the run


def name_box(budget: str, row: str) -> str:
    """The title of the box of a row."""
    return f"{row}, budget {budget}"


def build_button(box: str, words: str) -> Html:
    """A number that opens the box of that name."""
    return tag("button", words, type="button", popovertarget=_id(box), title="where this number comes from")


def build_box(title: str, path: Path, result: dict[str, Any]) -> Html:
    facts: list[tuple[str, object]] = [("file", tag("code", path))]
    if "scaled" in result:
        facts.append(("scaled", ", ".join(result["scaled"]) or "nothing"))
    facts += [
        ("data", result["data"]["name"]),
        ("network", _write_values(result["network"])),
        ("recipe", _write_values(result["recipe"])),
    ]
    runs = result["runs"]
    facts.append(
        ("errors", join(tag("div", f"seed {run['seed']}{words}") for run in runs for words in _list_errors(run)))
    )
    for key in KEYS:
        facts.append((key, _group_by_seed(key, runs)))
    if any(_LATER in run for run in runs):
        facts.append(("responses measured later", _group_by_seed(_LATER, runs)))
    rows = join(join([tag("dt", key), tag("dd", value)]) for key, value in facts)
    close = tag("button", "close", type="button", class_="close", popovertarget=_id(title), popovertargetaction="hide")
    return tag(
        "div", close, tag("h3", title), tag("dl", rows), id=_id(title), popover=True, role="dialog", aria_label=title
    )


def _id(title: str) -> str:
    return "from-" + re.sub(r"[^A-Za-z0-9_.-]", "_", title)


def _list_errors(run: dict[str, Any]) -> list[str]:
    """The texts that follow the seed: the error, on ImageNet one for each test."""
    result = run["result"]
    if "failed" in result:
        return [f": {result['failed']}"]
    if "tests" in run:
        each = run["tests"].items()
        return [f", {test}: {_write_error(f, 'test')}, top-5 {f['top5']['error']:.2f} %" for test, f in each]
    split = "test" if "test" in result else "validation"
    return [f": {_write_error(result[split], split)}"]


def _write_error(found: dict[str, Any], split: str) -> str:
    """`64.60 % test error of 10,000 images (95 %: 63.66 to 65.53)`."""
    text = f"{found['error']:.2f} % {split} error"
    if "images" in found and "interval" in found:
        low, high = found["interval"]
        text += f" of {found['images']:,} images (95 %: {low:.2f} to {high:.2f})"
    return text


def _group_by_seed(key: str, runs: list[dict[str, Any]]) -> Html:
    """The values of a key, each once, with the seeds that have it."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        value = run.get(key)
        words = _write_values(value) if isinstance(value, dict) else "unknown" if value is None else str(value)
        seeds.setdefault(words, []).append(str(run["seed"]))
    lines = [
        tag("div", tag("code", words), f" (seed {', '.join(which)})" if len(seeds) > 1 else "")
        for words, which in seeds.items()
    ]
    return join(lines)


def _write_values(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
