"""The page from made-up results: what stands where, what is missing, what is refused."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest

from resnets.cli import main
from resnets.errors import UserError
from resnets.papers.tables import EXPERIMENTS
from resnets.report.page import page as whole
from resnets.report.page import plot
from resnets.report.page.curves import PANELS
from resnets.report.page.html import Html, tag
from resnets.report.page.inputs import read_inputs
from resnets.report.page.plot import COLOURS

go = pytest.importorskip("plotly.graph_objects", reason="the page needs resnets[report]")


class Reader(HTMLParser):
    """Elements that are opened and closed in order, the rows of tables, and every figure's data."""

    VOID = ("meta", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.figures, self.ids, self.targets, self.outside = [], [], [], set(), set(), []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, name, attributes):
        attributes = dict(attributes)
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.targets |= {attributes[key].lstrip("#") for key in ("popovertarget", "href") if key in attributes}
        self.outside += [attributes[key] for key in ("src", "srcset") if key in attributes]
        if name not in self.VOID:
            self.open.append((name, attributes))
        if name == "tr":
            self.rows.append([])
        elif name in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, data):
        names = [name for name, _ in self.open]
        if "td" in names or "th" in names:
            self.rows[-1][-1] += data
        if self.open and self.open[-1][1].get("type") == "application/json":
            self.figures.append(json.loads(data))


@pytest.fixture
def made(made_results, tmp_path, capsys):
    """The page of the made-up results, read."""
    out = tmp_path / "report.html"
    assert main(["report", str(made_results), "-o", str(out)]) == 0
    assert capsys.readouterr().out == (
        f"{out}: 5 rows at budget hour, 1 rows at budget smoke, 1 analyses, 0 other trainings\n"
    )
    return Reader(out.read_text())


def test_a_table_has_our_value_beside_the_papers_and_a_column_for_each_budget(made):
    header = next(i for i, row in enumerate(made.rows) if row[:2] == ["row", "the paper"])
    assert made.rows[header][2:] == ["ours, budget hour", "ours, budget smoke"]
    table = {row[0]: row[1:] for row in made.rows[header + 1 : header + 12]}
    original = table["original"]
    assert original[0] == "6.61"
    assert original[1].startswith("60.20 ± 0.14 ≈ partly2 seeds, training loss 1.200")
    assert original[2].startswith("91.00 (fails) ? undecided1 seed")
    assert table["constant scaling 0.5 x + 0.5 F"][1].startswith("55.10 ± 0.14 ≈ partly")
    assert table["constant scaling 0 x + F: a plain net"][:2][0] == "fails"
    assert "✓ agrees" in table["constant scaling 0 x + F: a plain net"][1]
    assert table["constant scaling 0.5 x + F"][1].startswith("fails: 2 of 2 diverged ✓ agrees")
    assert table["1x1 conv shortcut"] == ["12.22", "missing", "missing"]


def test_ensembles_are_quoted_and_every_observation_has_a_verdict_a_budget(made):
    assert ["PReLU-net", "-/4.94", "quoted", "quoted"] in made.rows
    told = [row for row in made.rows if re.match(r"[1-7]\. ", row[0])]
    assert [row[0][0] for row in told] == list("1234567")
    assert all("undecided" in cell for row in told for cell in row[1:])


def test_every_number_and_every_link_leads_somewhere_and_nothing_outside(made):
    assert made.targets <= made.ids
    assert "from-resnet110-cifar10__budget_hour" in made.targets
    assert not made.outside


def test_a_box_tells_where_a_number_comes_from(made_results, tmp_path):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    text = (tmp_path / "a.html").read_text()
    box = text[text.index('id="from-resnet110-cifar10__budget_hour"') :].split('popover role="dialog"')[1]
    for words in ("seed 0: 60.10 % test error of 10,000 images", "c0ffee", "torch 2.4.0", "cpu made up", "images 16x16",
                  "resnets reproduce table1 --budget hour", "2026-01-02T00:00:00+00:00</code> (seed 1)"):  # fmt: skip
        assert words in box, words


def test_every_figure_is_one_that_plotly_accepts(made):
    titles = set()
    for figure in made.figures:
        go.Figure(figure)  # raises for a property that it does not know
        titles.add(figure["layout"]["yaxis"]["title"]["text"])
        for line in figure["data"]:
            assert len(line["x"]) == len(line["y"])
    assert "training loss (dashed)" in titles


def test_figure_7_of_v1_has_a_response_a_layer(made):
    drawn = [f["data"] for f in made.figures if f["layout"]["yaxis"]["title"]["text"] == "std of its responses"]
    assert len(drawn) == 2  # one a budget
    for [line] in drawn:
        assert (line["name"], line["x"], line["y"]) == ("ResNet, 110 layers", [1, 2], [0.5, 0.75])


@pytest.mark.parametrize(("values", "dtick"), [((1.5, 4.0), None), ((2.0, 90.0), "D2"), ((1e-5, 1.0), None)])
def test_log_axes_of_a_decade_or_two_have_few_ticks(values, dtick):
    lines, shape = [plot.make_trace(0, "net", [1, 2], list(values))], plot.make_layout("l", "loss", log=True)
    drawn = plot.build_figure(lines, shape, "a title")
    (spec,) = re.findall(r'<script type="application/json">(.*?)</script>', drawn)
    assert json.loads(spec)["layout"]["yaxis"].get("dtick") == dtick


def test_figure_1_is_in_the_papers_style(made):
    [figure] = [f for f in made.figures if any("original unit" in line["name"] for line in f["data"])
                and f["layout"].get("yaxis2")]  # fmt: skip
    loss, error = figure["data"]
    assert (loss["line"]["dash"], loss["y"]) == ("dash", [2.3, 2.0, 1.5, 1.2])
    assert ("dash" in error["line"], error["y"], error["yaxis"]) == (False, [90.0, 85.0, 80.0, 70.0], "y2")
    assert error["name"] == "ResNet-1001, original unit: test error 70.00 %"


def test_labels_of_files_are_never_markup(made, made_results, tmp_path):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    assert "<b>net" not in (tmp_path / "a.html").read_text()
    assert any(line["name"] == "a &lt;b&gt;net&lt;/b&gt;" for figure in made.figures for line in figure["data"])
    assert tag("td", "<i>", Html("<i></i>"), title='"') == '<td title="&quot;">&lt;i&gt;<i></i></td>'


def test_the_same_results_make_the_same_bytes(made_results, tmp_path):
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for path in pages:
        main(["report", str(made_results), "-o", str(path)])
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_panels_name_cells_that_are_there():
    for name, panels in PANELS.items():
        used = {i for which in panels.values() for i in which}
        assert used == set(range(len(EXPERIMENTS[name].cells))), name


def luminance(colour):
    """Relative, as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_of_lines_are_seen_on_light_and_dark(colour):
    for back in ("#ffffff", "#121417"):
        low, high = sorted((luminance(colour), luminance(back)))
        assert (high + 0.05) / (low + 0.05) >= 3


# --- what is refused --------------------------------------------------------------------------


def test_measurements_in_bench_are_left_alone_and_other_files_counted(made_results, capsys, tmp_path):
    (made_results / "bench").mkdir()
    (made_results / "bench" / "broken.json").write_text("{")
    (made_results / "other.json").write_text("[]")
    assert main(["report", str(made_results), "-o", str(tmp_path / "a.html")]) == 0
    assert capsys.readouterr().out.endswith("; 1 files of other kinds left out\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"row": "a"}', "a.json: budget is missing."),
        ('{"row": 7}', "a.json: row must be text, not 7."),
        ("[]", "leave it out"),
    ],
)
def test_files_that_are_no_results_are_refused_by_name(tmp_path, content, message, capsys):
    path = tmp_path / "a.json"
    path.write_text(content)
    assert main(["report", str(path), "-o", str(tmp_path / "a.html")]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert message in told
    assert not (tmp_path / "a.html").exists()


def test_folders_without_results_and_rows_given_twice_are_refused(tmp_path, made_results, write):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there is no result in"):
        read_inputs([tmp_path / "empty"])
    with pytest.raises(UserError, match="does not exist"):
        read_inputs([tmp_path / "no"])
    write(tmp_path / "again", EXPERIMENTS["table1"].cells[0], "hour", (1.0,))
    with pytest.raises(UserError, match="are of the same row and budget"):
        read_inputs([made_results, tmp_path / "again"])
    assert len(read_inputs([made_results, made_results / "hour"]).files) == 6  # the same file twice is one


def test_the_extra_is_named_where_it_is_missing(monkeypatch, made_results, tmp_path, capsys):
    whole._pack_plotly.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert main(["report", str(made_results), "-o", str(tmp_path / "a.html")]) == 2
    assert "resnets[report]" in capsys.readouterr().err
