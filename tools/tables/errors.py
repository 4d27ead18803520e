"""Errors as the tables write them, with what is uncertain about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resnets.runs import Summary


def write_interval(score: dict[str, Any]) -> str:
    """An error and its 95 % interval over test images."""
    low, high = score["interval"]
    return f"{score['error']:.2f} % ({low:.1f} to {high:.1f})"


def write_runs(scores: Sequence[dict[str, Any]]) -> str:
    """Of several runs the spread is over seeds; of one it can only be over test images."""
    if len(scores) > 1:
        return str(Summary(tuple(score["error"] for score in scores)))
    return f"{write_interval(scores[0])}, 1 run"
