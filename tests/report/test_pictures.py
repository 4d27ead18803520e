"""Names in pictures are words: no mathematics, no markup, none left out. And a picture replaces a link at its path."""

import xml.etree.ElementTree as Tree

import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from resnets.report.pictures import label, save

NAMES = ["_hidden", r"$\frac{broken$", "<script>alert(1)</script>", "a\x1b[31m\nb\u202e\udcff", "]]>&amp;", "--><x>"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_in_a_legend_is_shown_as_it_is(tmp_path, name):
    figure = Figure()
    figure.add_subplot().plot([1, 2], label=label(name))
    figure.legend()
    save(figure, tmp_path / "a.svg")
    root = Tree.parse(tmp_path / "a.svg").getroot()
    texts = [node.text.strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]
    shown = name.encode("ascii", "backslashreplace").decode().replace("\x1b", r"\x1b").replace("\n", r"\n")
    assert shown in texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_a_picture_does_not_follow_a_link(tmp_path):
    other = tmp_path / "other"
    other.write_text("dear")
    (tmp_path / "a.svg").symlink_to(other)
    figure = Figure()
    figure.add_subplot().plot([1, 2])
    save(figure, tmp_path / "a.svg")
    assert other.read_text() == "dear"
    assert not (tmp_path / "a.svg").is_symlink()
