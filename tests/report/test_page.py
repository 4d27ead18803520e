"""The page from made-up results: what stands where, what is missing, what is refused."""

import re

import pytest

from resnets.cli import main
from resnets.errors import UserError
from resnets.papers.tables import EXPERIMENTS
from resnets.report.page.chart import COLOURS, POINTS, make_line
from resnets.report.page.curves import PANELS
from resnets.report.page.html import Html, tag
from resnets.report.page.inputs import read_inputs
from resnets.report.page.strip import Axis, build_strip


@pytest.fixture
def made(made_results, tmp_path, capsys, read_page):
    """The page of the made-up results, read."""
    out = tmp_path / "report.html"
    assert main(["report", str(made_results), "-o", str(out)]) == 0
    assert capsys.readouterr().out == (
        f"{out}: 5 rows at budget hour, 1 rows at budget smoke, 1 analyses, 0 other trainings\n"
    )
    return read_page(out.read_text())


def read_table(made, number):
    """The rows of a table with verdicts, by their first cell."""
    heads = [i for i, row in enumerate(made.rows) if row[0] == "row"]
    start = [i for i in heads if len(made.rows[i]) == 4][number]
    end = next((i for i in heads if i > start), len(made.rows))
    return {row[0]: row[1:] for row in made.rows[start:end]}


def test_a_table_has_our_value_beside_the_papers_with_seeds_interval_and_verdict(made):
    table = read_table(made, 0)
    assert table["row"] == ["the paper 613 %", "ours, budget hour 50100 %", "verdict"]  # with the ends of the axes
    original = table["original"]
    assert original[0] == "6.61"
    assert original[1] == "60.20 ± 0.14 2 seeds"
    assert original[2] == "≈ partlyOn the same side of it as in the paper: 2 of 3 other rows; on the other side: 1."
    assert table["constant scaling 0.5 x + 0.5 F"][1].startswith("55.10 ± 0.14")
    assert table["constant scaling 0 x + F: a plain net"][0] == "fails✗"
    assert table["constant scaling 0 x + F: a plain net"][2].startswith("✓ agrees")
    assert table["constant scaling 0.5 x + F"][1].startswith("fails: 2 of 2 diverged")
    assert "1x1 conv shortcut" not in table  # not run: it is in the fold


def test_rows_that_were_not_run_are_folded_with_the_papers_number_and_the_command(made_results, tmp_path):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    text = (tmp_path / "a.html").read_text()
    table = text[text.index('<section id="table1">') :].split("</section>")[0]
    assert "<summary>7 rows not run at budget hour</summary>" in table
    assert "<li>1x1 conv shortcut: the paper 12.22; <em>not run</em></li>" in table
    assert "resnets reproduce table1 --budget hour" in table
    absent = text[text.index("tables that were not run</summary>") :]
    assert "<li>PReLU-net: the paper -/4.94; <em>another system&#x27;s, quoted</em></li>" in absent


def test_the_most_thorough_budget_is_shown_first_and_the_others_in_folds(made_results, tmp_path, write):
    cells = EXPERIMENTS["table1"].cells
    assert read_inputs([made_results]).rank_budgets(EXPERIMENTS["table1"]) == ["hour", "smoke"]
    write(made_results, cells[0], "day", (9.0,))
    ranked = read_inputs([made_results]).rank_budgets(EXPERIMENTS["table1"])
    assert ranked == ["hour", "day", "smoke"]  # one row of four is too few to show first
    write(made_results, cells[1], "day", (90.0,))
    inputs = read_inputs([made_results])
    assert inputs.rank_budgets(EXPERIMENTS["table1"]) == ["day", "hour", "smoke"]
    assert inputs.find_best(cells[0].row.name).budget == "day"
    assert inputs.find_best(cells[3].row.name).budget == "hour"
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    text = (tmp_path / "a.html").read_text()
    table = text[text.index('<section id="table1">') :].split("</section>")[0]
    assert table.index("ours, budget day") < table.index("<summary>The same at budget hour</summary>")
    assert "No row has a second seed" in table
    assert "9.00 (8.0 to 10.0)</button> <small>1 seed</small>" in table


def test_every_observation_has_a_card_with_a_verdict_and_its_reasons(made_results, tmp_path):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    text = (tmp_path / "a.html").read_text()
    cards = text[text.index('<section id="observations">') :].split("</section>")[0]
    assert [*map(int, re.findall(r"<h3>(\d)\. ", cards))] == [1, 2, 3, 4, 5, 6, 7]
    assert cards.count("Our runs cannot tell.") == 7
    assert cards.count("<summary>Why</summary>") == 7


def test_the_first_screen_has_five_sentences_figure_1_and_table_1(made_results, tmp_path, read_page):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    text = (tmp_path / "a.html").read_text()
    found = text[text.index('<section id="found">') :].split("</section>")[0]
    assert found.split("</ol>")[0].count("<li>") == 5
    assert "4.92 % of CIFAR-10" in found
    (chart,) = read_page(found + "</section>").charts
    assert chart["title"] == "Figure 1: 1001 layers"
    assert "v2 Table 1: test errors, %" in found
    assert text.index('id="found"') < text.index('id="explorer"')


def test_every_number_and_every_link_leads_somewhere_and_nothing_outside(made):
    assert made.targets <= set(made.ids)
    assert len(set(made.ids)) == len(made.ids)
    assert "from-resnet110-cifar10__budget_hour" in made.targets
    assert not made.outside


def test_a_box_tells_where_a_number_comes_from(made_results, tmp_path):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    text = (tmp_path / "a.html").read_text()
    box = text[text.index('id="from-resnet110-cifar10__budget_hour"') :].split('popover role="dialog"')[1]
    for words in ("seed 0: 60.10 % test error of 10,000 images", "c0ffee", "torch 2.4.0", "cpu made up", "images 16x16",
                  "resnets reproduce table1 --budget hour", "2026-01-02T00:00:00+00:00</code> (seed 1)"):  # fmt: skip
        assert words in box, words


def test_figure_7_of_v1_has_a_response_a_layer(made):
    drawn = [chart for chart in made.charts if chart["y"] == "std of its responses"]
    assert len(drawn) == 2  # one a budget
    for chart in drawn:
        (line,) = chart["lines"]
        assert (line["name"], line["x"], line["y"]) == ("ResNet, 110 layers", [1, 2], [0.5, 0.75])


def test_figure_1_is_in_the_papers_style(made):
    [chart] = [chart for chart in made.charts if chart["title"] == "v2 Figure 1"]
    loss, error = chart["lines"]
    assert (loss["dash"], loss["y"], "right" in loss) == (True, [2.3, 2.0, 1.5, 1.2], False)
    assert ("dash" in error, error["y"], error["right"]) == (False, [90.0, 85.0, 80.0, 70.0], True)
    assert error["name"] == "ResNet-1001, original unit: test error 70.00 % (69.0 to 71.0)"


def test_labels_of_files_are_never_markup(made, made_results, tmp_path):
    main(["report", str(made_results), "-o", str(tmp_path / "a.html")])
    assert "<b>net" not in (tmp_path / "a.html").read_text()
    assert any(line["name"] == "a <b>net</b>" for chart in made.charts for line in chart["lines"])
    assert tag("td", "<i>", Html("<i></i>"), title='"') == '<td title="&quot;">&lt;i&gt;<i></i></td>'


def test_long_lines_are_thinned_and_keep_their_last_point():
    line = make_line(1, "net", range(1000), [i / 7 for i in range(999)] + [float("nan")], dash=True, faint=False)
    assert len(line["x"]) <= POINTS + 1
    assert (line["x"][0], line["x"][-1], line["y"][-1]) == (0, 999, None)
    assert line["y"][1] == float(f"{line['x'][1] / 7:.4g}")
    assert ("dash" in line, "faint" in line) == (True, False)


def test_strips_place_numbers_on_a_shared_axis():
    axis = Axis.around([6.1, 12.9, float("inf"), float("nan")])
    assert (axis.low, axis.high) == (6.0, 14.0)
    assert axis.place(8.0) == 25.0
    assert axis.place(99.0) == 100.0
    assert Axis.around([]).place(0.5) == 33.33
    drawn = build_strip(axis, 8.0, (7.0, 9.0))
    assert 'class="bar" style="left:12.5%;width:25.0%"' in drawn
    assert "left:25.0%" in drawn
    assert "✗" in build_strip(axis, float("inf"))


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
