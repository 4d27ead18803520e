"""Print a `Propagation` as a table; for deep networks some rows, spread evenly."""

from __future__ import annotations

from collections.abc import Iterable

from resnets.analysis.propagation import Numbers, Propagation
from resnets.text import count, print_lines, print_table

ROWS = 24
KEY = """\
l counts from 0, and L is the last map of the size of x_l.
rms, growth  of x_l, and from x_l to x_l+1
F            |F(x_l)| / |x_l+1|
(4)          |x_L - x_l - sum of F| / |x_L|: by how much equation (4) fails
grad, cos    |dE/dx_l|, and the cosine of dE/dx_l with dE/dx_L
product      of the shortcuts' factors from x_l to x_L, as in (7) and (8)
cut          % of what the ReLU after the addition reads and sets to zero"""


def print_propagation(label: str, data: str, found: Propagation) -> None:
    """A table under what was measured."""
    loss = "not finite" if found.loss is None else f"{found.loss:.3f}"
    print_lines(f"{label}: {count(len(found.share))} units, loss {loss}")
    kind = "of the batch" if found.statistics == "batch" else "running"
    print_lines(f"{count(found.images)} images of {data}, {count(found.batch)} at a time; statistics of BN: {kind}")
    print_lines()
    columns: dict[str, tuple[Numbers, str]] = {
        "rms": (found.rms, ".3g"),
        "growth": (found.growth, ".3f"),
        "F": (found.share, ".2g"),
        "(4)": (found.missed, ".1e"),
        "grad": (found.gradient, ".2g"),
        "cos": (found.cosine, ".3f"),
        "product": (found.product, ".3g"),
        "predicted": (found.predicted_product, ".3g"),
        "cut": (tuple(None if share is None else 100 * share for share in found.truncated), ".1f"),
    }
    header = ("l", *columns)
    rows = [
        (str(i), *(_cell(values, i, form) for values, form in columns.values())) for i in choose_rows(found.spans, ROWS)
    ]
    print_table(header, rows, right=header)
    print_lines()


def _cell(values: Numbers, i: int, form: str) -> str:
    value = values[i] if i < len(values) else None  # the last map has no unit behind it
    return "" if value is None else format(value, form)


def choose_rows(spans: Iterable[tuple[int, int]], rows: int) -> list[int]:
    """About `rows` indices: both ends of each span, and between them a number in proportion to its length."""
    spans = list(spans)
    total = sum(last - first + 1 for first, last in spans)
    chosen: list[int] = []
    for first, last in spans:
        length = last - first + 1
        wanted = min(length, max(2, round(rows * length / total)))
        chosen += [first + round(i * (last - first) / max(wanted - 1, 1)) for i in range(wanted)]
    return chosen
