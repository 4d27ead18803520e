"""The picture of an analysis: which points it draws, and that it is a picture."""

import math
import sys

import pytest

from resnets.errors import UserError
from resnets.report.pictures import require_matplotlib
from resnets.report.propagation import PANELS, draw, read_line

DATA = {
    "label": "a net",
    "spans": [[0, 1], [2, 3]],
    "maps": {name: [2.0, 0.0, None, 1.0] for name in ("rms", "gradient", "cosine", "missed")}
    | {"product": [0.25, 1.0, 0.5, 1.0], "predicted_product": [0.2, 1.0, 0.4, 1.0]},
    "units": {"growth": [1.1, None, 0.9], "share": [0.5, 0.4, 0.3], "truncated": [None, None, None]},
}
BY_NAME = {panel.name: panel for panel in PANELS}


def points(name: str, what: str = "") -> list[tuple[int, float | None]]:
    found = zip(*read_line(DATA, BY_NAME[name], what or name), strict=True)
    return [(at, None if math.isnan(value) else value) for at, value in found]


def test_a_log_axis_leaves_out_zero_and_every_axis_what_is_not_there():
    assert points("rms") == [(0, 2.0), (1, None), (2, None), (3, 1.0)]
    assert points("growth") == [(0, 1.1), (1, None), (2, 0.9)]


def test_what_is_relative_to_the_last_map_of_a_size_is_a_line_of_its_own():
    assert points("cosine") == [(0, 2.0), (1, 0.0), (1, None), (2, None), (3, 1.0), (3, None)]
    assert points("product", "predicted_product")[:3] == [(0, 0.2), (1, 1.0), (1, None)]


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"resnets\[plot\]"):
        require_matplotlib("the analysis")


def test_the_same_data_make_the_same_picture(tmp_path):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / name for name in ("a.svg", "b.svg", "a.png")]
    draw([DATA, {**DATA, "label": "another net"}], paths[::2])
    draw([DATA, {**DATA, "label": "another net"}], [paths[1]])
    text = paths[0].read_text()
    assert text == paths[1].read_text()
    for words in ("a net", "another net", "no values", *(panel.title for panel in PANELS if panel.title.isascii())):
        assert words.replace("&", "&amp;") in text, words
    assert paths[2].read_bytes().startswith(b"\x89PNG")
