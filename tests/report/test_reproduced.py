"""README's table and picture of the papers' experiments, from made-up results."""

import shutil

import pytest

from resnets.experiments.observations import FIGURE3
from resnets.papers.rows import Cell, Row
from resnets.papers.tables import EXPERIMENTS
from tools.tables import pages as tables
from tools.tables import reproduced

PAGE = "<!-- results: figure1 -->\nold\n<!-- end -->\n<!-- results: table1 -->\nold\n<!-- end -->\n"
HOUR = "<!-- results: hour -->\nold\n<!-- end -->\n"


def test_what_has_not_been_run_leaves_a_sentence_that_says_how(tmp_path, made_results):
    empty = tables.fill_page(PAGE, tmp_path / "none")
    assert "`resnets reproduce figure1 --budget hour`" in empty
    assert "`resnets reproduce table1 --budget hour`" in empty
    shutil.rmtree(made_results / "hour")  # what is left is smoke, which is not published
    assert tables.fill_page(PAGE, made_results) == empty


def test_a_table_with_the_papers_values_ours_and_what_is_missing(made_results):
    text = tables.fill_page(PAGE, made_results)
    assert "old" not in text
    line = next(line for line in text.splitlines() if line.startswith("| original"))
    assert line.startswith(
        "| original | 6.61 | [60.20 +- 0.14](results/hour/resnet110-cifar10.json), 2 runs | partly ("
    )
    assert "| 1x1 conv shortcut | 12.22 | not run | - |" in text
    assert "Scaled: images 16x16, 40it for 64000it." in text
    # ranks 1, 3.5, 3.5, 2 of the paper's and 2, 3, 4, 1 of ours: 3.5 / sqrt(4.5 * 5)
    assert "Rank correlation with the paper over 4 rows on cifar10: +0.74." in text
    curves = "ResNet-1001, original unit, test error 70.00 % (69.0 to 71.0); ResNet-1001, proposed unit, not run"
    assert f'alt="v2 Figure 1: {curves}"' in text


def test_a_better_budget_is_shown_instead_and_links_to_the_other(made_results, write):
    original, plain, *_ = EXPERIMENTS["table1"].cells
    assert "No table has results at a better budget yet." in tables.fill_page(HOUR, made_results)
    write(made_results, original, "day", (20.0,))
    assert "ours, budget `hour`" in tables.fill_page(PAGE, made_results)  # one row has no order
    write(made_results, plain, "day", (60.0,))
    readme, hour = (tables.fill_page(page, made_results) for page in (PAGE, HOUR))
    assert "| original | 6.61 | [20.00 (19.0 to 21.0)](results/day/resnet110-cifar10.json), 1 run | undecided" in readme
    assert "| constant scaling 0.5 x + F | fails | not run | - |" in readme
    assert "Other budgets: [`hour`](docs/reproduce-hour.md)." in readme
    assert "| original | 6.61 | [60.20 +- 0.14](../results/hour/resnet110-cifar10.json), 2 runs" in hour


def test_every_observation_has_a_verdict_of_its_best_budget_or_says_what_it_takes(made_results, write):
    for row in FIGURE3:
        write(made_results, Cell("", row), "day", (70.0,))
    for budget in ("hour", "day"):
        for name in ("plain20", "resnet20"):
            write(made_results, Cell("", Row(name)), budget, (50.0, 50.4))
    lines = tables.fill_page("<!-- results: observations -->\nold\n<!-- end -->", made_results).splitlines()[3:-1]
    assert [line.split(" | ")[0] for line in lines] == [f"| {n}" for n in range(1, 8)]
    assert "| undecided | - | no budget has results of all of resnet110-cifar10, resnet110-scale" in lines[1]
    assert "takes two cores about" in lines[1]
    write(made_results, EXPERIMENTS["table1"].cells[0], "day", (60.0, 60.4))
    lines = tables.fill_page("<!-- results: observations -->\nold\n<!-- end -->", made_results).splitlines()[3:-1]
    assert "| undecided | `day` | not clear: " in lines[1]
    assert "| undecided | `day` | there is no deeper net to compare" in lines[6]


def test_budgets_have_their_price_and_what_they_have_shown(made_results):
    text = tables.fill_page("<!-- results: budgets -->\nold\n<!-- end -->", made_results)
    hour = next(line for line in text.splitlines() if line.startswith("| `hour` |"))
    assert "| table1 +0.74 (4 rows) | 0 | 0 | 7 |" in hour
    assert "smoke" not in text


def test_the_picture_is_drawn_for_light_and_dark_the_same_each_time(made_results):
    pytest.importorskip("matplotlib")
    reproduced.draw(made_results / "none")
    assert not list(made_results.glob("*.svg"))
    reproduced.draw(made_results)
    light, dark = ((made_results / name).read_text() for name in ("figure1.svg", "figure1-dark.svg"))
    reproduced.draw(made_results)
    assert (made_results / "figure1.svg").read_text() == light
    for text in (light, dark):
        assert "ResNet-1001, original unit, test error 70.00 %" in text
        assert "proposed unit" not in text  # it has no result
    assert "#e6e6e6" in dark
    assert "#e6e6e6" not in light
